"""What ``replay`` and ``restore`` have in common: rounds of slices of records to topics."""
