"""A running broker as the admin app sees it: one module per area of the app's ``BrokerView``, joined by ``live.py``,
and what those need alone.
"""
