"""SASL as Kafka's clients and brokers speak it: the messages of SCRAM, and the client's half of each mechanism."""
