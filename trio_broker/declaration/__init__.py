"""What a cluster is declared to have, read from a file or an option, and how it differs from what the cluster has."""
