//! The dimuon of a whole event and its invariant mass, from the full-precision objects.
//!
//! Muons are collected from the object blocks of all fragments, wherever they lie; of all pairs
//! with opposite charge the one with the largest sum of pT is taken. That pair is always the
//! hardest positive with the hardest negative muon, so no list is kept. The coarse trigger words
//! are not looked at; what to do with the mass is decided in [`crate::mass_window`].

use livetime_wire::event::EventAccess;
use livetime_wire::fragment::{FragmentHeader, HEADER_WORDS, TRAILER_WORDS};
use livetime_wire::object::{self, ObjectBlockParts, ObjectBlockView, ObjectKind, PhysicsObject};
use livetime_wire::part_words::PartWords;

/// What was found in an event.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DimuonFinding {
    /// The mass of the pair in GeV; `None` without two muons of opposite charge.
    pub mass_gev: Option<f64>,
    /// Fragments that could not be read: flagged by the receiver, or with a broken header or
    /// object block. Their muons are missing from the search.
    pub unreadable: u32,
}

/// The mass in GeV of the event's dimuon; `None` without two muons of opposite charge.
#[inline]
pub fn dimuon_mass(event: &dyn EventAccess) -> Option<f64> {
    find_dimuon(event).mass_gev
}

/// Looks for the dimuon of an event.
///
/// Muons with a charge of zero, or with values that are not finite, are left out. Of muons with
/// the same pT the one with the lower index in its event is taken, so that the answer does not
/// depend on the order of the fragments.
pub fn find_dimuon(event: &dyn EventAccess) -> DimuonFinding {
    let mut search = Search::default();
    let mut unreadable = 0;
    for index in 0..event.fragment_count() {
        let read = for_each_object(event, index, |object| search.add(object));
        unreadable += u32::from(read.is_err());
    }
    let mass_gev = match (search.positive, search.negative) {
        (Some(positive), Some(negative)) => Some(mass_of_pair(&positive, &negative)),
        _ => None,
    };
    DimuonFinding {
        mass_gev,
        unreadable,
    }
}

/// A fragment that should be readable and is not: flagged by the receiver, or with a broken header
/// or object block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Takes the objects of a fragment, wherever its pages end; none if its data are something else.
///
/// # Errors
/// [`Unreadable`]: which objects it carried is not known, and none was taken.
///
/// # Panics
/// If `index` is not below the number of fragments.
pub fn for_each_object(
    event: &dyn EventAccess,
    index: usize,
    take: impl FnMut(PhysicsObject),
) -> Result<(), Unreadable> {
    let entry = event.entry(index);
    // A damaged fragment may carry any pT: it could put a false entry into a mass plot.
    if !entry.status.is_good() {
        return Err(Unreadable);
    }
    let parts = event.parts(index);
    // Trailer words are kept out of the data, so that none is taken for the start of a block.
    let data_end = (entry.words as usize).saturating_sub(TRAILER_WORDS);
    match parts.parts[..] {
        [words] => in_one_part(words, data_end, take),
        _ => in_parts(parts.iter(), data_end, take),
    }
}

/// As most fragments lie.
#[inline]
fn in_one_part(
    words: &[u32],
    data_end: usize,
    take: impl FnMut(PhysicsObject),
) -> Result<(), Unreadable> {
    FragmentHeader::parse(words).map_err(|_| Unreadable)?;
    let data = words.get(HEADER_WORDS..data_end.min(words.len()));
    let data = data.unwrap_or(&[]);
    if data.first() == Some(&object::MAGIC) {
        let block = ObjectBlockView::new_checked(data).map_err(|_| Unreadable)?;
        block.objects().for_each(take);
    }
    Ok(())
}

fn in_parts(
    mut words: PartWords<'_>,
    data_end: usize,
    take: impl FnMut(PhysicsObject),
) -> Result<(), Unreadable> {
    let header = words.next_words::<HEADER_WORDS>().ok_or(Unreadable)?;
    FragmentHeader::parse(&header).map_err(|_| Unreadable)?;
    words.truncate(data_end.saturating_sub(HEADER_WORDS));
    if words.peek() == Some(object::MAGIC) {
        let block = ObjectBlockParts::new_checked(words).map_err(|_| Unreadable)?;
        block.objects().for_each(take);
    }
    Ok(())
}

/// The hardest muon of either charge so far.
#[derive(Default)]
struct Search {
    positive: Option<PhysicsObject>,
    negative: Option<PhysicsObject>,
}

impl Search {
    fn add(&mut self, object: PhysicsObject) {
        let finite = object.pt.is_finite() && object.eta.is_finite() && object.phi.is_finite();
        if object.kind != ObjectKind::Muon || !finite || object.pt <= 0.0 {
            return;
        }
        let slot = if object.charge > 0.0 {
            &mut self.positive
        } else if object.charge < 0.0 {
            &mut self.negative
        } else {
            return;
        };
        let harder = |other: &PhysicsObject| {
            object.pt > other.pt || (object.pt == other.pt && object.index < other.index)
        };
        if slot.as_ref().is_none_or(harder) {
            *slot = Some(object);
        }
    }
}

/// Invariant mass in GeV of two massless particles: m^2 = 2 pT1 pT2 (cosh(eta1 - eta2) -
/// cos(phi1 - phi2)).
///
/// The muon mass is left out: at 10 GeV of pT it would add less than 0.01 %.
#[inline]
pub fn mass_of_pair(a: &PhysicsObject, b: &PhysicsObject) -> f64 {
    let (pt_a, pt_b) = (f64::from(a.pt), f64::from(b.pt));
    let eta = f64::from(a.eta) - f64::from(b.eta);
    let phi = f64::from(a.phi) - f64::from(b.phi);
    // Rounding may leave a hair below zero for parallel tracks.
    let squared = 2.0 * pt_a * pt_b * (eta.cosh() - phi.cos());
    squared.max(0.0).sqrt()
}

#[cfg(test)]
pub(crate) mod tests {
    use core::f32::consts::PI;

    use livetime_wire::crc::crc32c;
    use livetime_wire::event::{EventHeader, EventView, FragmentEntry, FragmentParts};
    use livetime_wire::message::FRAGMENT_PAGES_MAX;
    use livetime_wire::object::ObjectBlock;
    use livetime_wire::slink::FragmentStatus;
    use livetime_wire::{EventNumber, L2Mask, RunNs, RunNumber, SourceId, TriggerNumber};

    use super::*;

    pub(crate) fn muon(index: u16, pt: f32, eta: f32, phi: f32, charge: f32) -> PhysicsObject {
        PhysicsObject {
            kind: ObjectKind::Muon,
            index,
            pt,
            eta,
            phi,
            charge,
            dxy: 0.0,
        }
    }

    /// Two muons back to back with this invariant mass.
    pub(crate) fn back_to_back(mass: f32) -> [PhysicsObject; 2] {
        [
            muon(0, mass / 2.0, 0.3, 0.0, 1.0),
            muon(1, mass / 2.0, 0.3, PI, -1.0),
        ]
    }

    /// A fragment whose data are an object block and some filling.
    pub(crate) fn fragment(objects: &[PhysicsObject]) -> Vec<u32> {
        let block = ObjectBlock {
            source_run: RunNumber(1),
            source_event: EventNumber(2),
            event_objects: 2,
        };
        let block_words = ObjectBlock::words(objects.len());
        fragment_of(block_words + 3, |data| {
            block.emit(objects.iter(), data);
        })
    }

    pub(crate) fn fragment_of(data_words: usize, fill: impl FnOnce(&mut [u32])) -> Vec<u32> {
        let header = FragmentHeader {
            source: SourceId(1),
            run: RunNumber(1),
            trigger_low: 5,
            bunch: 0,
            trigger_type: 0,
            event_type: 0,
        };
        let mut words = vec![0; data_words + HEADER_WORDS + TRAILER_WORDS];
        header.emit(0, data_words, &mut words, fill);
        words
    }

    /// The words of an event with these fragments and their receiver status.
    pub(crate) fn event(
        trigger: u64,
        fragments: &[(Vec<u32>, FragmentStatus)],
        missing: &[SourceId],
    ) -> Vec<u32> {
        let header = EventHeader {
            run: RunNumber(1),
            trigger: TriggerNumber(trigger),
            triggered_at: RunNs(0),
            mask: L2Mask(1),
            filter_reason: 0,
            streams: 0,
        };
        let entries: Vec<FragmentEntry> = fragments
            .iter()
            .enumerate()
            .map(|(index, (words, status))| FragmentEntry {
                source: SourceId(index as u32),
                words: words.len() as u32,
                status: *status,
                crc: crc32c(words),
            })
            .collect();
        let mut words = Vec::new();
        header.emit(&entries, missing, &mut words);
        for (fragment, _) in fragments {
            words.extend_from_slice(fragment);
        }
        words
    }

    pub(crate) fn good(fragments: Vec<Vec<u32>>) -> Vec<(Vec<u32>, FragmentStatus)> {
        fragments
            .into_iter()
            .map(|words| (words, FragmentStatus::GOOD))
            .collect()
    }

    /// The event with its fragments in pages, or in as many as a fragment may have.
    struct InPages<'a> {
        event: EventView<'a>,
        page_words: usize,
    }

    impl EventAccess for InPages<'_> {
        fn trigger(&self) -> TriggerNumber {
            self.event.trigger()
        }

        fn mask(&self) -> L2Mask {
            self.event.mask()
        }

        fn is_incomplete(&self) -> bool {
            self.event.is_incomplete()
        }

        fn fragment_count(&self) -> usize {
            self.event.fragment_count()
        }

        fn entry(&self, index: usize) -> FragmentEntry {
            self.event.entry(index)
        }

        fn parts(&self, index: usize) -> FragmentParts<'_> {
            let words = self.event.parts(index).parts[0];
            let least = words.len().div_ceil(FRAGMENT_PAGES_MAX);
            let pages = words.chunks(self.page_words.max(least));
            FragmentParts {
                parts: pages.collect(),
            }
        }
    }

    fn finding(fragments: &[(Vec<u32>, FragmentStatus)]) -> DimuonFinding {
        let words = event(5, fragments, &[]);
        let event = EventView::new_checked(&words).unwrap();
        let found = find_dimuon(&event);
        for page_words in 1..=40 {
            let in_pages = InPages { event, page_words };
            assert_eq!(find_dimuon(&in_pages), found, "pages of {page_words} words");
        }
        found
    }

    fn close(mass: Option<f64>, expected: f64) -> bool {
        mass.is_some_and(|mass| (mass - expected).abs() < 1e-3 * expected)
    }

    #[test]
    fn muons_are_found_across_fragments_in_any_order() {
        let [plus, minus] = back_to_back(91.2);
        let electron = PhysicsObject {
            kind: ObjectKind::Electron,
            ..muon(2, 200.0, 0.0, 0.0, -1.0)
        };
        let fragments = [fragment(&[plus]), fragment(&[minus, electron])];
        let there = finding(&good(fragments.to_vec()));
        assert!(close(there.mass_gev, 91.2), "{there:?}");
        let back = finding(&good(fragments.into_iter().rev().collect()));
        assert_eq!(there, back);
        assert_eq!(there.unreadable, 0);
    }

    #[test]
    fn the_hardest_pair_of_opposite_charge_is_taken() {
        let [plus, minus] = back_to_back(91.2);
        let soft = muon(2, 5.0, 1.0, 1.0, 1.0);
        let hard_same = muon(3, 300.0, 1.0, 1.0, 1.0);
        let with_soft = finding(&good(vec![fragment(&[soft, plus, minus])]));
        assert!(close(with_soft.mass_gev, 91.2));
        let with_hard = finding(&good(vec![fragment(&[plus, minus, hard_same])]));
        let expected = mass_of_pair(&hard_same, &minus);
        assert!(close(with_hard.mass_gev, expected));
        let same_charge = finding(&good(vec![fragment(&[plus, hard_same])]));
        assert_eq!(same_charge.mass_gev, None);
    }

    #[test]
    fn equal_momenta_are_resolved_by_index() {
        let [plus, minus] = back_to_back(91.2);
        let twin = muon(7, plus.pt, 2.0, 2.0, 1.0);
        for order in [[plus, twin, minus], [twin, plus, minus]] {
            assert!(close(finding(&good(vec![fragment(&order)])).mass_gev, 91.2));
        }
    }

    #[test]
    fn muons_without_sense_are_left_out() {
        let [plus, minus] = back_to_back(91.2);
        for broken in [
            PhysicsObject {
                charge: 0.0,
                ..plus
            },
            PhysicsObject {
                charge: f32::NAN,
                ..plus
            },
            PhysicsObject {
                pt: f32::INFINITY,
                ..plus
            },
            PhysicsObject { pt: -1.0, ..plus },
            PhysicsObject {
                eta: f32::NAN,
                ..plus
            },
            PhysicsObject {
                phi: f32::NEG_INFINITY,
                ..plus
            },
        ] {
            let found = finding(&good(vec![fragment(&[broken, minus])]));
            assert_eq!(found.mass_gev, None, "{broken:?}");
        }
    }

    #[test]
    fn fragments_without_objects_are_no_error_and_broken_ones_are_counted() {
        let [plus, minus] = back_to_back(91.2);
        let pattern = fragment_of(4, |data| data.fill(0xAAAA_AAAA));
        let empty = fragment_of(0, |_| {});
        let quiet = finding(&good(vec![pattern, empty, fragment(&[plus, minus])]));
        assert_eq!(quiet.unreadable, 0);
        assert!(close(quiet.mass_gev, 91.2));
        let mut wrong_kind = fragment(&[plus]);
        wrong_kind[HEADER_WORDS + object::HEADER_WORDS] = 99;
        let cut_off = fragment_of(1, |data| data[0] = object::MAGIC);
        let mut wrong_marker = fragment(&[plus]);
        wrong_marker[0] = 0;
        let mut broken = good(vec![wrong_kind, cut_off, wrong_marker, vec![]]);
        broken.push((fragment(&[plus]), FragmentStatus::BAD_CRC));
        broken.push((fragment(&[minus]), FragmentStatus::GOOD));
        let expected = DimuonFinding {
            mass_gev: None,
            unreadable: 5,
        };
        assert_eq!(finding(&broken), expected);
    }

    #[test]
    fn a_trailer_is_not_taken_for_an_object_block() {
        // Without data, the first word behind the header is the front-end status.
        let mut words = fragment_of(0, |_| {});
        words[HEADER_WORDS] = object::MAGIC;
        assert_eq!(finding(&good(vec![words])), DimuonFinding::default());
    }

    #[test]
    fn mass_follows_the_formula() {
        let [plus, minus] = back_to_back(91.2);
        assert!(close(Some(mass_of_pair(&plus, &minus)), 91.2));
        let same = muon(0, 45.6, 0.3, 0.0, 1.0);
        assert!(mass_of_pair(&same, &same) < 1e-6);
        // Against the sum of the four-vectors.
        let (a, b) = (
            muon(0, 50.0, -0.5, 2.5, 1.0),
            muon(1, 30.0, 1.0, -0.5, -1.0),
        );
        let sum = [a, b].map(|muon| {
            let [pt, eta, phi] = [muon.pt, muon.eta, muon.phi].map(f64::from);
            [
                pt * eta.cosh(),
                pt * phi.cos(),
                pt * phi.sin(),
                pt * eta.sinh(),
            ]
        });
        let [e, x, y, z] = core::array::from_fn(|i| sum[0][i] + sum[1][i]);
        let expected = (e * e - x * x - y * y - z * z).sqrt();
        assert!((mass_of_pair(&a, &b) - expected).abs() < 1e-9 * expected);
    }
}
