"""What only the broker itself knows of itself: its disks, connections, threads, tasks, loggers and measurements.

An area belongs here if another broker of the cluster would answer something else. It is asked for below
``/api/v1/brokers/{broker_id}``, and shown below ``/brokers/{broker_id}``.
"""
