"""Searching a topic's records: what is asked for, the walk over partitions, and the rows that are found.

``query`` reads what is asked for, ``partition_scan`` walks over one partition in either direction, ``search`` merges
the partitions, filters, and stays within its budget, ``rows`` shows records, ``export`` writes them as lines.
"""
