"""Records from segment files: of a running broker, by its manifest, or of a directory that no broker has open.

``manifest`` says what may be read, ``file_planning`` makes tasks of it, ``transport`` reads them in workers.
``offline`` makes manifests for a directory without a broker.
"""
