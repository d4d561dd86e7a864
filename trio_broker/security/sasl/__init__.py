"""Authentication of clients by SASL, without any I/O: frames in, frames out."""
