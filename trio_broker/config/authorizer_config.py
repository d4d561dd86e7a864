"""The settings of the authorizer: whether there is one, and who may do everything.

Source: Kafka's ServerConfigs and StandardAuthorizer; docs/security.md.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import Validator, key
from trio_broker.config.validators import one_of

NO_AUTHORIZER = ""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only one that there is. The name is Kafka's, and loads nothing."""


def principals_of(text: str) -> frozenset[str]:
    """The principals in a list, separated by semicolons since names in certificates have commas."""
    return frozenset(each.strip() for each in text.split(";") if each.strip())


def _are_principals(text: str) -> bool:
    return all(all(each.partition(":")) for each in principals_of(text))


@attrs.frozen(kw_only=True)
class AuthorizerConfig:
    """Whether rights are asked for."""

    authorizer_class_name: str = key(
        NO_AUTHORIZER,
        "What decides who may do what, by access control entries; empty lets every client do everything.",
        validator=one_of(NO_AUTHORIZER, STANDARD_AUTHORIZER),
    )
    super_users: str = key(
        "",
        "The principals that may do everything, those of brokers among them, as User:admin;User:broker.",
        validator=Validator("principals separated by semicolons, as User:admin", _are_principals),
    )
    allow_everyone_if_no_acl_found: bool = key(False, "Whether everybody may do what no access control entry is about.")
