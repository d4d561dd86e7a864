"""Throws broken bytes at every decoder of the wire: each message in each version, request headers, metadata
records, group records.

Frames come from real clients (tests/protocol/golden_frames.json) and from the declarations: filled with random values,
or with many of the smallest elements of one construct. They are then cut, flipped, spliced and lied in, because noise
alone never gets past the first length. Of every decoder three things are asked:

* nothing but ``WireError`` escapes,
* it is done within ``MAX_DECODE_SECONDS`` of processor time, whatever counts and lengths the bytes claim,
* what it read can be written and reads the same again.

    python -m fuzz.decoders --seconds 60 --seed 1

``--profile`` prints instead what the densest of them hold of the event loop (``fuzz.dense_profile``).

The same seed and the same number of rounds try the same bytes. A finding is printed with the bytes that caused it, and
the exit status is then 1.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import attrs

from fuzz.dense_messages import dense_messages
from fuzz.dense_profile import print_profile
from kafka_wire.codec import decode, encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.headers import RequestHeader, read_request_header, request_header
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.primitives import MAX_TAGS, Fixed, Sized
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, fields_of
from kafka_wire.stored.groups import GROUP_RECORDS, decode_group_record, encode_group_record
from kafka_wire.stored.metadata import METADATA_RECORDS, decode_metadata_record, encode_metadata_record
from tests.protocol.golden_frames import load_golden_frames

MAX_DECODE_SECONDS: Final = 1.0
"""Processor time for one frame. Ours are below 1 kB and take microseconds; a second means that a count was believed."""

MAX_MUTATIONS: Final = 4
"""Of one frame. More of them mostly break the first bytes again, and the rest is never reached."""

MAX_FRAME_BYTES: Final = 64 * 1024
"""Of a mutated frame; splicing would otherwise let frames grow from round to round."""

MAX_ELEMENTS: Final = 3
"""In a generated list."""

DENSE_ELEMENTS: Final = MAX_TAGS
"""Of the construct that is repeated in a frame of the smallest elements."""

EDGE_BYTES: Final = (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
EDGE_NUMBERS: Final = (
    *(b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\x80\x00"),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x0f\xff\xff"),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x80", b"\xff\xff\x03"),
)
"""Lengths and counts on the edge: null, minus two, the largest, the smallest, huge, and varints that do not end."""


@attrs.frozen
class Target:
    """A decoder, and a frame that it reads.

    ``check`` decodes its argument, and asserts that what was read survives a round trip.
    """

    name: str
    seed_frame: bytes
    check: Callable[[bytes], None]


@attrs.frozen
class Finding:
    """A frame that a decoder could not cope with."""

    target: str
    frame: bytes
    problem: str

    def __str__(self) -> str:
        return f"{self.target}: {self.problem}\n  {self.frame.hex()}"


@attrs.define
class Statistics:
    """How many frames were tried, and how many of them were read after all."""

    tried: int = 0
    read: int = 0


# --- Frames to begin with ---


def random_message(kind: type[Any], version: int, chance: random.Random) -> Any:
    """Return a message of ``kind`` with random values in the fields that ``version`` has."""
    return kind(**{field.name: random_field(field, version, chance) for field in fields_of(kind)})


def random_field(field: Field, version: int, chance: random.Random) -> Any:
    if version not in field.versions or (field.tag is not None and chance.random() < 0.3):
        return field.new_default()
    if version in field.nullable and chance.random() < 0.2:
        return None
    return random_value(field.type, version, chance)


def random_value(kind: WireType, version: int, chance: random.Random) -> Any:
    match kind:
        case Fixed("bool"):
            return chance.random() < 0.5
        case Fixed("uuid"):
            return chance.randbytes(16)
        case Fixed("float64"):
            return chance.uniform(-1e9, 1e9)
        case Fixed() as fixed:
            bits = 8 * fixed.size
            low = 0 if fixed.kafka_type.startswith("u") else -(1 << (bits - 1))
            return chance.choice((low, low + (1 << bits) - 1, 0, chance.randrange(low, low + (1 << bits))))
        case Sized("string"):
            return "".join(chance.choices("abcdefgh-ijkäöü", k=chance.randrange(12)))
        case Sized():
            return chance.randbytes(chance.choice((0, 1, 12, 127, 128, 200)))
        case ArrayOf(element):
            return [random_value(element, version, chance) for _ in range(chance.randrange(MAX_ELEMENTS + 1))]
        case StructOf(cls):
            return random_message(cls, version, chance)


def targets(chance: random.Random) -> Iterator[Target]:
    """Yield every decoder with a frame of each kind there is for it."""
    for request in all_requests().values():
        for kind in (request, request.RESPONSE):
            for version in range(kind.VERSIONS.low, kind.VERSIONS.high + 1):
                seed_frame = encode_bytes(random_message(kind, version, chance), version)
                check = message_check(kind, version)
                yield Target(f"{kind.__name__} v{version}", seed_frame, check)
                if dense := list(dense_messages(kind, version, DENSE_ELEMENTS)):
                    chosen = chance.choice(dense)
                    yield Target(f"{kind.__name__} v{version} with many {chosen.construct}", chosen.data, check)
        header = RequestHeader(
            api_key=request.API_KEY, api_version=request.VERSIONS.high, correlation_id=7, client_id="fuzz"
        )
        yield Target(f"header of {request.__name__}", request_header(header), check_header)
    for record in METADATA_RECORDS:
        for version in range(record.VERSIONS.low, record.VERSIONS.high + 1):
            value = encode_metadata_record(random_message(record, version, chance), version)
            yield Target(f"{record.__name__} v{version}", value, check_metadata_record)
    for key_kind, value_kind in GROUP_RECORDS:
        for version in range(value_kind.VERSIONS.low, value_kind.VERSIONS.high + 1):
            key = key_kind.API_KEY.to_bytes(2, "big") + encode_bytes(random_message(key_kind, 0, chance), 0)
            value = version.to_bytes(2, "big") + encode_bytes(random_message(value_kind, version, chance), version)
            yield Target(f"{key_kind.__name__} and value", key, group_record_key_check(value))
            yield Target(f"{value_kind.__name__} v{version} under its key", value, group_record_value_check(key))
    for golden in load_golden_frames():
        header, position = read_request_header(memoryview(golden.frame))
        check = message_check(all_requests()[header.api_key], header.api_version)
        yield Target(f"{golden.request} v{golden.version} of {golden.client}", golden.frame[position:], check)


# --- Decoders ---


def message_check(kind: type[Any], version: int) -> Callable[[bytes], None]:
    """Return the check for one message in one version."""

    def check(frame: bytes) -> None:
        message, end = decode(kind, version, frame)
        assert 0 <= end <= len(frame), f"read up to byte {end} of {len(frame)}"
        again, _ = decode(kind, version, encode_bytes(message, version))
        require_same(message, again)

    return check


def require_same(message: Any, again: Any) -> None:
    """Assert that a message is the same after a round trip.

    By their text where they differ: a float that is not a number equals nothing, not even itself.
    """
    assert again == message or repr(again) == repr(message), f"{message} became {again}"


def check_header(frame: bytes) -> None:
    _, position = read_request_header(memoryview(frame))
    assert 0 <= position <= len(frame), f"read up to byte {position} of {len(frame)}"


def check_metadata_record(value: bytes) -> None:
    record = decode_metadata_record(value)
    require_same(record, decode_metadata_record(encode_metadata_record(record)))


def group_record_key_check(value: bytes) -> Callable[[bytes], None]:
    """Return the check for the key of a record with this value."""
    return lambda key: check_group_record(key, value)


def group_record_value_check(key: bytes) -> Callable[[bytes], None]:
    """Return the check for the value of a record under this key."""
    return lambda value: check_group_record(key, value)


def check_group_record(key: bytes, value: bytes) -> None:
    record = decode_group_record(key, value)
    if record is None:
        return
    # What the newest version written cannot say is lost once, and nothing after that.
    written = encode_group_record(record)
    again = decode_group_record(*written)
    assert again is not None
    assert encode_group_record(again) == written, f"{record} became {again}"


# --- Breaking them ---


def mutated(frame: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return ``frame`` with a few things wrong in it; ``other`` is a frame to take pieces from."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, MAX_MUTATIONS)):
        chance.choice(MUTATIONS)(data, other, chance)
    return bytes(data[:MAX_FRAME_BYTES])


def flip_bit(data: bytearray, other: bytes, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def set_byte(data: bytearray, other: bytes, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice(EDGE_BYTES)


def set_number(data: bytearray, other: bytes, chance: random.Random) -> None:
    number, position = chance.choice(EDGE_NUMBERS), chance.randrange(len(data) + 1)
    data[position : position + len(number)] = number


def insert_number(data: bytearray, other: bytes, chance: random.Random) -> None:
    position = chance.randrange(len(data) + 1)
    data[position:position] = chance.choice(EDGE_NUMBERS)


def insert_noise(data: bytearray, other: bytes, chance: random.Random) -> None:
    position = chance.randrange(len(data) + 1)
    data[position:position] = chance.randbytes(chance.randint(1, 8))


def cut_off(data: bytearray, other: bytes, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def remove_piece(data: bytearray, other: bytes, chance: random.Random) -> None:
    position = chance.randrange(len(data) + 1)
    del data[position : position + chance.randint(1, 8)]


def repeat_piece(data: bytearray, other: bytes, chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    piece = data[start : start + chance.randint(1, 64)]
    data[start:start] = piece * chance.randint(1, 8)


def splice(data: bytearray, other: bytes, chance: random.Random) -> None:
    data[chance.randrange(len(data) + 1) :] = other[chance.randrange(len(other) + 1) :]


MUTATIONS: Final = (
    flip_bit,
    set_byte,
    set_number,
    insert_number,
    insert_noise,
    cut_off,
    remove_piece,
    repeat_piece,
    splice,
)


# --- Trying ---

Fuzz: TypeAlias = Callable[[int, Iterator[int], Statistics], Iterator[Finding]]
"""Yields findings, from a seed on, in as many rounds as it is given."""


def try_frame(target: Target, frame: bytes, statistics: Statistics) -> Finding | None:
    """Return what is wrong with how ``target`` takes ``frame``, None when nothing is."""
    statistics.tried += 1
    started = time.thread_time()
    try:
        target.check(frame)
        statistics.read += 1
    except WireError:
        pass
    except Exception as error:
        return Finding(target.name, frame, f"{type(error).__name__}: {error}")
    seconds = time.thread_time() - started
    if seconds > MAX_DECODE_SECONDS:
        return Finding(target.name, frame, f"took {seconds:.1f} s")
    return None


def fuzz(seed: int, rounds: Iterator[Any], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings. In each round every target is tried once with its frame intact and once with it broken."""
    chance = random.Random(seed)
    for _ in rounds:
        everything = list(targets(chance))
        for target in everything:
            for frame in (target.seed_frame, mutated(target.seed_frame, chance.choice(everything).seed_frame, chance)):
                if finding := try_frame(target, frame, statistics):
                    yield finding


def until(deadline: float) -> Iterator[int]:
    """Count until the monotonic clock shows ``deadline``."""
    return itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count())


def command_line(description: str) -> argparse.ArgumentParser:
    """The arguments of a fuzzer: how long, and from which seed on."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness starts (default: 0)")
    return parser


def run_command(fuzz: Fuzz, description: str) -> int:
    """Run ``fuzz`` from the command line, as ``run``."""
    arguments = command_line(description).parse_args()
    return run(fuzz, arguments.seed, arguments.seconds)


def run(fuzz: Fuzz, seed: int, seconds: float) -> int:
    """Print what ``fuzz`` finds within ``seconds``; return the exit code of the program."""
    statistics, findings = Statistics(), 0
    for finding in fuzz(seed, until(time.monotonic() + seconds), statistics):
        findings += 1
        print(finding)
    print(f"{statistics.tried} frames tried, {statistics.read} read, {findings} findings")
    return 1 if findings else 0


def main() -> int:
    parser = command_line("Throw broken bytes at every decoder of the wire.")
    parser.add_argument("--profile", action="store_true", help="time the densest messages and batches instead")
    arguments = parser.parse_args()
    if arguments.profile:
        print_profile()
        return 0
    return run(fuzz, arguments.seed, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
