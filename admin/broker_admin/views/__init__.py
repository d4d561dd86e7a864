"""What the admin app reads from a broker and changes in it: one module per area, each with its values and its Protocol.

``view.py`` joins the Protocols to ``BrokerView``.
"""
