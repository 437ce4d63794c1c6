//! The configuration: TOML with places, to typed values, to problems rendered for people.

mod document;
mod render;
