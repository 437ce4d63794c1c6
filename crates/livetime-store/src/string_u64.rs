//! Serde form of 64-bit identifiers and times: decimal strings.
//!
//! JSON numbers are doubles in most readers and would lose bits beyond 2^53. Used with
//! `#[serde(with = "crate::string_u64")]`; [`optional`] is the form for optional fields.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| D::Error::custom(format_args!("`{text}` is not a 64-bit number")))
}

/// The same for `Option<u64>`, with `null` for none.
pub(crate) mod optional {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = Option::<std::borrow::Cow<str>>::deserialize(deserializer)?;
        let parse = |text: std::borrow::Cow<str>| {
            text.parse()
                .map_err(|_| D::Error::custom(format_args!("`{text}` is not a 64-bit number")))
        };
        text.map(parse).transpose()
    }
}
