"""Files with keys and certificates, as an operator has them."""

from __future__ import annotations

from pathlib import Path

import trustme


def write_key_store(path: Path, certificate: trustme.LeafCert) -> Path:
    """Write the key and the chain of ``certificate`` into one file that its owner alone may read."""
    path.touch(mode=0o600)
    path.write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
    return path
