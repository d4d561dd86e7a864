"""Records out of segment files: of a running broker, by the manifest it gives out, or of a directory nobody has open.

``manifest`` is what may be read, ``file_planning`` makes tasks of it, ``transport`` reads them in workers. ``offline``
finds out for a directory what a broker would tell of it.
"""
