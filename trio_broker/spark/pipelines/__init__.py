"""Jobs that are run as commands: each a function of a Spark session, and a command of ``trio-broker pipeline``.

``export`` and ``etl`` write tables, ``replay`` and ``restore`` write topics, ``stats`` looks at batches. They plan as
the data source does (``planning``), but their work is done inside the tasks (``running``), so that no row is ever one
of the JVM's. What they got done is noted in a ``commit_log``, and a job that was interrupted goes on from there.
"""
