"""Carries out what is declared of users' passwords."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from kafka_wire.errors import KafkaError
from kafka_wire.sasl.scram import NONCE_BYTES, ScramMechanism, salt_of
from kafka_wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.scram_control import ScramChange, ScramUpsertion, find_credential
from trio_broker.declaration.credential_plan import CredentialPlan, plan_credentials
from trio_broker.declaration.declaration import Declaration, DeclaredCredential
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)

MADE_BY_PEOPLE = (AccessControlEntryRecord, UserScramCredentialRecord, DelegationTokenRecord, ClientQuotaRecord)
"""Records that brokers do not write by themselves."""


def is_new_cluster(image: MetadataImage) -> bool:
    """Whether the cluster has nothing but brokers and what they set by themselves."""
    return not (image.topics or any(map(image.records_of, MADE_BY_PEOPLE)))


async def plan_credentials_on_image(
    declaration: Declaration, image: MetadataImage, runtime: Runtime
) -> tuple[CredentialPlan, ...]:
    """Return what is to be done about each password, those of the first users first."""
    first = declaration.first_credentials
    if first and not is_new_cluster(image):
        # A password that was changed since must not be that of the first start again, nor a deleted user be back.
        log.info("no user of %s is added: the cluster is not new", first[0].origin)
        first = ()
    declared = (*first, *declaration.credentials)
    return await runtime.workers.run(partial(plan_credentials, declared, partial(find_credential, image)))


async def set_passwords(plans: Sequence[CredentialPlan], controller: ControllerClient, runtime: Runtime) -> list[str]:
    """Set the passwords that are not; return what is refused, a line each."""
    refused: list[str] = []
    # A request names a user once.
    for mechanism in ScramMechanism:
        changed = {
            each.declared.name: each.declared
            for each in plans
            if each.declared.mechanism is mechanism and not each.is_done
        }
        if not changed:
            continue
        salts = [salt_of(runtime.random.randbytes(NONCE_BYTES)) for _ in changed]
        salted: list[ScramChange] = await runtime.workers.run(partial(list, map(upsertion, changed.values(), salts)))
        outcomes = await controller.alter_scram_credentials(salted)
        refused += [f"{changed[user]}: {error}" for user, error in outcomes.items() if isinstance(error, KafkaError)]
    return refused


def upsertion(declared: DeclaredCredential, salt: bytes) -> ScramUpsertion:
    """What sets a password. Blocks."""
    mechanism, iterations = declared.mechanism, declared.iterations
    salted = mechanism.salted_password(declared.password, salt, iterations)
    return ScramUpsertion(declared.name, mechanism.number, iterations, salt, salted)
