"""The image that the broker answers from, and what waits for the next."""

from __future__ import annotations

from functools import partial

import attrs

from tests.scheduling import Race, outcomes
from trio_broker.cluster.metadata_cache import MetadataCache


async def test_a_wait_for_an_offset_ends_with_the_image_that_has_it(image, autojump_clock):
    async def new_race() -> Race[None]:
        cache = MetadataCache(image)
        cache.set_image(attrs.evolve(image, offset=image.offset + 1))
        wanted = image.offset + 2
        return Race(partial(cache.wait_for, wanted), partial(cache.set_image, attrs.evolve(image, offset=wanted)))

    await outcomes(new_race)
