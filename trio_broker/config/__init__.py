"""The settings: each key is declared once, and its checks, descriptions and documentation are made from that.

The settings classes (``LogConfig``, ``SocketServerConfig``, ``GroupCoordinatorConfig`` …) declare the keys as their
fields, ``keys`` lists them by name. ``properties`` reads Kafka's file format; ``broker_config`` merges file,
environment, command line and dynamic changes in Kafka's order of precedence; ``resource_config`` computes the effective
values of a topic or group; ``listeners`` reads the listener settings; ``documentation`` renders ``docs/config.md``.
"""
