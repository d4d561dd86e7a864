"""Decoders: from the bytes of a key, a value or a header to what filters compute with and pages show.

``choice`` has them by name and chooses one by content; ``plain`` are text, JSON, numbers and the like, ``protobuf``,
``avro`` and ``message_pack`` the formats of their names. Contents come from any producer: each decoder is bounded in
size, elements and depth, and raises nothing but ``NotDecodable``.
"""
