"""A broker that every Kafka client takes for Kafka, on Trio.

This package stays light on purpose: a Spark executor that imports ``trio_broker.spark`` must not pay for, or even have,
an event loop. Start reading at ``trio_broker.broker``.
"""

__version__ = "0.1.0"

SOFTWARE_NAME = "trio-broker"
"""By which other brokers count the clients of this program: letters, digits, dots and dashes alone (KIP-511)."""
