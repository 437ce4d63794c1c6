//! Event sources: physics generator, recorded events, patterns with their checkers.
