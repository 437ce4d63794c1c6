"""A slow, plain reference of the trigger packet and the Level-2 menu.

It follows docs/formats/trigger-packet.md and nothing else: no code is shared with the Rust
crates, and only the standard library is used. ``python -m oracle CONFIG FILE`` compares a dump of
``livetime source --decide --jsonl FILE`` with it, word for word and bit for bit.
"""
