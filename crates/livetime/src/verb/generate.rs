//! `livetime check --generate N FILE`: a configuration of N links, to see how large systems fare.
//!
//! The links are written one by one, as a cabling database would: each its own source id, 32 to a
//! readout unit. What is in the file is checked by [`crate::verb::check`] like any other.

use std::fmt::Write;

/// Sources that a readout unit serves.
const LINKS_PER_UNIT: u32 = 32;
/// The first source id; sub-detectors of 256 links follow one another.
const FIRST_SOURCE: u32 = 0x0010_0000;
/// Most links: those whose events have a ticket.
pub(crate) const LINKS_MAX: u32 = 3000;

/// The text of a configuration with `links` data links.
pub(crate) fn configuration(links: u32) -> String {
    let units = links.div_ceil(LINKS_PER_UNIT);
    let mut text = format!(
        "# {links} data links to {units} readout units, made by `livetime check --generate {links}`.\n\n\
         format = 1\n\n[run]\ntriggers = 1000\n\n[[source]]\nkind = \"physics\"\nrate = \"1 kHz\"\n\n[source.fragment]\nbytes_mean = \"1 KiB\"\nbytes_max = \"8 KiB\"\n\n\
         [[link]]\nto = \"trg0\"\nsource_id = 0x700000\n\n[builder]\nbuilder_units = 4\ncredits = 8\n\n[store]\nevent_max = \"32 MiB\"\n\n"
    );
    for link in 0..links {
        let source = FIRST_SOURCE + ((link / 256) << 16) + link % 256;
        let unit = link / LINKS_PER_UNIT;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[[link]]\nto = \"ru{unit}\"\nsource_id = {source:#08x}\npage = \"2 KiB\"\n\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, read_text};

    use super::*;

    #[test]
    fn generated_configurations_are_good_at_every_size() {
        for links in [1, 31, 32, 33, 300, 1650, LINKS_MAX] {
            let text = configuration(links);
            let config = read_text("generated.toml", &text, &Overrides::default());
            let config = config.unwrap_or_else(|problems| panic!("{links} links: {problems}"));
            assert_eq!(config.chain.data_links.len(), links as usize);
            let units = config.chain.builder.readout_units;
            assert_eq!(units.len() as u32, links.div_ceil(LINKS_PER_UNIT));
        }
    }
}
