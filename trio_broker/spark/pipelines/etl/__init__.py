"""``etl``: topics of JSON to a table with typed columns, and a table of dead letters."""
