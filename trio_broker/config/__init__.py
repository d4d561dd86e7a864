"""Everything that can be set: one declaration per key, from which all that shows, checks or changes it is made.

The settings classes (``LogConfig``, ``SocketServerConfig``, ``GroupCoordinatorConfig`` …) declare the keys as their
fields, ``keys`` lists them by name. ``properties`` reads Kafka's file format; ``broker_config`` lays file, environment,
command line and dynamic changes over each other in Kafka's order; ``resource_config`` gives one topic or group its
effective values; ``listeners`` reads the listener settings; ``documentation`` renders ``docs/config.md``.
"""
