"""The jobs of ``trio-broker pipeline``: each is a function of a Spark session, and a command.

``export`` and ``etl`` write tables (``table_jobs``), ``replay`` and ``restore`` write topics (``rounds``), ``stats``
reports on batches. They plan as
the data source does (``planning``), but work inside the tasks (``task_runner``), so that no row crosses into the JVM.
They commit their progress to a ``commit_log``, and an interrupted job goes on from there.
"""
