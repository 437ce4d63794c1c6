//! What a host says of itself when it is asked, as one JSON document.

use serde_json::{Value, json};

/// What a host says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostHello {
    /// Its name in the configuration.
    pub host: String,
    /// What tells this start of it from any other: one that has died is not the one that comes in its
    /// place.
    pub life: u64,
    /// Version of its program.
    pub version: String,
    /// Version of the documents that it understands.
    pub protocol: u64,
    /// Where its roles' streams are accepted, as `address:port`.
    pub streams_at: String,
    /// Number of its process.
    pub process: u32,
    /// MTU of the interface with the address of its streams \[bytes\], 0 if it is not known.
    pub mtu: u32,
}

impl HostHello {
    /// The document.
    pub fn to_bytes(&self) -> Vec<u8> {
        json!({
            "host": self.host,
            "life": self.life,
            "version": self.version,
            "protocol": self.protocol,
            "streams_at": self.streams_at,
            "process": self.process,
            "mtu": self.mtu,
        })
        .to_string()
        .into_bytes()
    }

    /// The hello of a document; `None` for one that cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| document[key].as_str().map(str::to_owned);
        Some(Self {
            host: text("host")?,
            life: document["life"].as_u64().unwrap_or(0),
            version: text("version")?,
            protocol: document["protocol"].as_u64()?,
            streams_at: text("streams_at")?,
            process: u32::try_from(document["process"].as_u64()?).ok()?,
            // Programs that are to be refused by their version may not say it.
            mtu: document["mtu"]
                .as_u64()
                .map_or(Some(0), |mtu| u32::try_from(mtu).ok())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_travels_whole_and_others_are_none() {
        let hello = HostHello {
            host: "readout".to_owned(),
            life: u64::MAX,
            version: "0.1.0".to_owned(),
            protocol: 1,
            streams_at: "10.0.0.1:4000".to_owned(),
            process: 77,
            mtu: 9000,
        };
        assert_eq!(HostHello::from_bytes(&hello.to_bytes()), Some(hello));
        let before = br#"{"host":"a","version":"0","protocol":1,"streams_at":"","process":7}"#;
        assert_eq!(
            HostHello::from_bytes(before).map(|hello| hello.mtu),
            Some(0)
        );
        for bytes in [&b"x"[..], b"{}", b"{\"host\":\"a\",\"version\":1}"] {
            assert_eq!(HostHello::from_bytes(bytes), None);
        }
    }
}
