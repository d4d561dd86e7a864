"""Filters of records: a subset of the Common Expression Language (CEL), compiled to closures.

``lexer`` cuts the text into tokens, ``parser`` makes closures of them, ``operations`` says what each operation does
with which types, ``record_filter`` runs an expression over records, each within a budget.

Source: the language definition of CEL; docs/admin-api.md for what of it there is.
"""
