//! Blocks of a measurement between blocks of its floor, and which of them may be compared.
//!
//! The cores of a virtual machine change place within minutes: a cache line takes three or ten
//! times as long from one minute to the next. So each block has a floor just before and just after
//! it; where these two disagree the block is discarded and counted, and blocks of different
//! placement are never put together. The floors themselves are `livetime_shm::floor`.

use std::time::{Duration, Instant};

use livetime_shm::floor::{Samples, cache_line_ping_pong};
use serde_json::{Map, Value, json};

use super::BenchError;
use super::document::{BenchDocument, Quotient, Target, latency, median, rounded};

/// Floors before and after a block that differ by more than this factor are unlike.
pub const LIKE_FLOORS: f64 = 1.25;
/// A cache line that goes to the other core and back in less is between cores that share a cache.
pub const NEAR_NS: u64 = 250;
/// A bench measures up to so many times the blocks that it needs, for those that are discarded.
const BLOCKS_TRIED: usize = 3;
/// Share of the time that other programs get between blocks, where the scheduler gives them none.
const REST: f64 = 0.06;

/// How far apart two cores are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    /// There is only one core: the threads take turns on it.
    OneCore,
    /// A cache line goes there and back in less than [`NEAR_NS`].
    Near,
    /// It takes longer.
    Far,
}

impl Placement {
    /// The word in documents.
    pub fn key(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Floors and the blocks between them: one floor more than blocks.
#[derive(Debug)]
pub struct Interleaved<F, B> {
    floors: Vec<F>,
    blocks: Vec<B>,
    tolerance: f64,
}

/// A block that may be compared with the floors around it.
#[derive(Debug)]
pub struct Kept<'a, F, B> {
    /// The floor just before.
    pub before: &'a F,
    /// The floor just after.
    pub after: &'a F,
    /// What was measured.
    pub block: &'a B,
}

impl<F, B> Kept<'_, F, B> {
    /// The mean of a figure of both floors.
    pub fn floor(&self, figure: impl Fn(&F) -> f64) -> f64 {
        (figure(self.before) + figure(self.after)) / 2.0
    }
}

/// The blocks that may be compared with each other, and what became of the others.
#[derive(Debug)]
pub struct Selection<'a, F, B> {
    /// The blocks.
    pub kept: Vec<Kept<'a, F, B>>,
    /// Blocks measured.
    pub measured: usize,
    /// Blocks whose floors disagree.
    pub discarded: usize,
    /// Blocks with like floors of another class, such as another placement of the cores.
    pub other_class: usize,
    /// No two floors agreed: nothing counts as kept or is judged, and the one block that is shown is
    /// that with the least disagreement.
    pub unlike: bool,
}

impl<F, B> Selection<'_, F, B> {
    /// The median over the blocks of a figure of each.
    pub fn median(&self, figure: impl Fn(&Kept<'_, F, B>) -> f64) -> f64 {
        median(&self.all(figure))
    }

    /// Two figures of the block with the median ratio of them.
    pub fn quotient(&self, figures: impl Fn(&Kept<'_, F, B>) -> (f64, f64)) -> Quotient {
        let of_block = |kept: &Kept<'_, F, B>| {
            let (over, under) = figures(kept);
            Quotient { over, under }
        };
        Quotient::median(self.kept.iter().map(of_block).collect())
    }

    /// A target about these blocks: without floors that agree it is not judged.
    pub fn judged(&self, target: Target) -> Target {
        target.where_floors_agree(!self.unlike)
    }

    /// A figure of each block.
    pub fn all(&self, figure: impl Fn(&Kept<'_, F, B>) -> f64) -> Vec<f64> {
        self.kept.iter().map(figure).collect()
    }

    /// Samples of all blocks together.
    pub fn merged<'s>(&'s self, samples: impl Fn(&'s B) -> &'s Samples) -> Samples {
        merge(self.kept.iter().map(|kept| samples(kept.block)))
    }

    /// Samples of all floors together.
    pub fn merged_floors<'s>(&'s self, samples: impl Fn(&'s F) -> &'s Samples) -> Samples {
        let floors = self.kept.iter().flat_map(|kept| [kept.before, kept.after]);
        merge(floors.map(samples))
    }

    /// What became of the blocks, for the document.
    pub fn to_json(&self) -> Value {
        json!({
            "measured": self.measured,
            "kept": if self.unlike { 0 } else { self.kept.len() },
            "discarded_floor_moved": self.discarded,
            "other_placement": self.other_class,
            "floors_agree": !self.unlike,
        })
    }
}

fn merge<'a>(all: impl Iterator<Item = &'a Samples>) -> Samples {
    Samples::from_unsorted(
        all.flat_map(|samples| samples.sorted_ns().iter().copied())
            .collect(),
    )
}

/// Measures floor, block, floor, block, .. floor until `wanted` blocks have like floors, or three
/// times as many were measured. `level` is the figure by which floors are compared.
///
/// # Errors
/// The first error of either.
pub fn interleave<F, B>(
    wanted: usize,
    tolerance: f64,
    mut floor: impl FnMut() -> Result<F, BenchError>,
    mut block: impl FnMut() -> Result<B, BenchError>,
    level: impl Fn(&F) -> f64,
) -> Result<Interleaved<F, B>, BenchError> {
    let mut measured = Interleaved {
        floors: vec![floor()?],
        blocks: Vec::new(),
        tolerance,
    };
    let mut like = 0;
    while like < wanted && measured.blocks.len() < BLOCKS_TRIED * wanted {
        let start = Instant::now();
        measured.blocks.push(block()?);
        measured.floors.push(floor()?);
        let [.., before, after] = measured.floors.as_slice() else {
            break;
        };
        like += usize::from(disagreement(level(before), level(after)) <= tolerance);
        rest(start.elapsed());
    }
    Ok(measured)
}

/// Leaves other programs a share of the time.
fn rest(after: Duration) {
    std::thread::sleep(after.mul_f64(REST));
}

/// Whether two levels of a floor are near enough for what lies between them to be judged.
pub fn floors_agree(before: f64, after: f64) -> bool {
    disagreement(before, after) <= LIKE_FLOORS
}

fn disagreement(before: f64, after: f64) -> f64 {
    let (low, high) = (before.min(after), before.max(after));
    if low > 0.0 { high / low } else { f64::INFINITY }
}

impl<F, B> Interleaved<F, B> {
    /// The blocks with like floors, of the first class that a third of them have: targets are about
    /// cores that are near, if the machine was like that for long enough to tell.
    pub fn select<C: Ord + Copy>(
        &self,
        level: impl Fn(&F) -> f64,
        class: impl Fn(&F) -> C,
    ) -> Selection<'_, F, B> {
        let pairs = || {
            let around = self.floors.iter().zip(self.floors.iter().skip(1));
            around
                .zip(&self.blocks)
                .map(|((before, after), block)| Kept {
                    before,
                    after,
                    block,
                })
        };
        let unlikeness = |kept: &Kept<'_, F, B>| {
            let moved = class(kept.before) != class(kept.after);
            let factor = disagreement(level(kept.before), level(kept.after));
            if moved { f64::INFINITY } else { factor }
        };
        let measured = self.blocks.len();
        let like: Vec<_> = pairs()
            .filter(|kept| unlikeness(kept) <= self.tolerance)
            .collect();
        let discarded = measured - like.len();
        let classes = || like.iter().map(|kept| class(kept.before));
        let count = |wanted: C| classes().filter(|found| *found == wanted).count();
        let enough = like.len().div_ceil(3);
        let first = classes().filter(|class| count(*class) >= enough).min();
        let Some(first) = first else {
            let best = pairs().min_by(|a, b| unlikeness(a).total_cmp(&unlikeness(b)));
            let kept = best.into_iter().collect();
            return Selection {
                kept,
                measured,
                discarded,
                other_class: 0,
                unlike: true,
            };
        };
        let all = like.len();
        let kept: Vec<_> = like
            .into_iter()
            .filter(|kept| class(kept.before) == first)
            .collect();
        let other_class = all - kept.len();
        Selection {
            kept,
            measured,
            discarded,
            other_class,
            unlike: false,
        }
    }
}

/// The floor of everything between two cores: a bare cache line, and payloads with it.
#[derive(Debug, Clone)]
pub struct LineFloor {
    /// Round trips of a bare cache line: one word each way.
    pub bare: Samples,
    /// Round trips that carry so many bytes each way.
    pub carrying: Vec<(usize, Samples)>,
    cpus: [usize; 2],
}

/// Bytes of a bare cache line's message.
const BARE_BYTES: usize = 8;

impl LineFloor {
    /// Measures `rounds` round trips of each kind.
    ///
    /// # Errors
    /// When the floor cannot be measured.
    pub fn measure(carrying: &[usize], rounds: u32) -> Result<Self, BenchError> {
        let bare = cache_line_ping_pong(BARE_BYTES, rounds)?;
        let carrying: Result<Vec<_>, BenchError> = carrying
            .iter()
            .map(|bytes| Ok((*bytes, cache_line_ping_pong(*bytes, rounds)?.round_trip)))
            .collect();
        Ok(Self {
            bare: bare.round_trip,
            carrying: carrying?,
            cpus: bare.cpus,
        })
    }

    /// Median of the bare round trip \[ns\].
    pub fn bare_p50(&self) -> f64 {
        self.bare.p50() as f64
    }

    /// Round trips with this payload, the bare ones if it was not measured.
    pub fn of_bytes(&self, bytes: usize) -> &Samples {
        let found = self.carrying.iter().find(|(carried, _)| *carried == bytes);
        found.map_or(&self.bare, |(_, samples)| samples)
    }

    /// How far apart the cores are.
    pub fn placement(&self) -> Placement {
        match self.bare.p50() {
            _ if self.cpus[0] == self.cpus[1] => Placement::OneCore,
            ns if ns < NEAR_NS => Placement::Near,
            _ => Placement::Far,
        }
    }
}

/// Adds the floors of the blocks kept, where the cores are, and what became of the blocks.
pub fn add_line_floor<B>(document: &mut BenchDocument, selection: &Selection<'_, LineFloor, B>) {
    let Some(first) = selection.kept.first() else {
        return;
    };
    let placement = first.before.placement();
    document.add_floor("placement", placement.key());
    let bare = selection.merged_floors(|floor| &floor.bare);
    document.add_floor("cache_line_round_trip_ns", latency(&bare));
    for (bytes, _) in &first.before.carrying {
        let carried = selection.merged_floors(|floor| floor.of_bytes(*bytes));
        document.add_floor(
            format!("cache_line_round_trip_{bytes}_bytes_ns"),
            latency(&carried),
        );
    }
    document.add_floor("blocks", selection.to_json());
}

/// Adds floors that are times per item.
pub fn add_item_floor<B>(
    floors: &mut Map<String, Value>,
    key: impl Into<String>,
    selection: &Selection<'_, f64, B>,
) {
    let values: Vec<f64> = selection
        .kept
        .iter()
        .flat_map(|kept| [*kept.before, *kept.after])
        .collect();
    floors.insert(key.into(), rounded(median(&values)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(floors: &[f64]) -> Interleaved<f64, usize> {
        Interleaved {
            floors: floors.to_vec(),
            blocks: (0..floors.len() - 1).collect(),
            tolerance: LIKE_FLOORS,
        }
    }

    fn is_far(floor: &f64) -> bool {
        *floor > 250.0
    }

    #[test]
    fn blocks_whose_floors_disagree_are_discarded_and_counted() {
        let all = measured(&[100.0, 110.0, 500.0, 510.0, 505.0, 505.0, 505.0, 120.0]);
        let selection = all.select(|floor| *floor, is_far);
        let blocks: Vec<usize> = selection.kept.iter().map(|kept| *kept.block).collect();
        assert_eq!(blocks, [2, 3, 4, 5], "four far blocks against one near one");
        assert_eq!(
            (
                selection.measured,
                selection.discarded,
                selection.other_class
            ),
            (7, 2, 1)
        );
        assert_eq!(selection.median(|kept| kept.floor(|floor| *floor)), 505.0);
        assert_eq!(selection.to_json()["kept"], 4);
        let third = measured(&[100.0, 110.0, 500.0, 510.0, 505.0]);
        let selection = third.select(|floor| *floor, is_far);
        assert_eq!(*selection.kept[0].block, 0, "one near block of three");
        assert_eq!((selection.kept.len(), selection.other_class), (1, 2));
    }

    #[test]
    fn floors_on_both_sides_of_the_bound_are_unlike_however_near_they_are() {
        let selection_of = measured(&[249.0, 251.0]);
        let selection = selection_of.select(|floor| *floor, is_far);
        assert_eq!((selection.discarded, selection.unlike), (1, true));
    }

    #[test]
    fn without_any_like_floors_the_best_block_is_kept_and_said_to_be_unlike() {
        let all = measured(&[100.0, 200.0, 130.0]);
        let selection = all.select(|floor| *floor, |_| ());
        assert!(selection.unlike);
        assert_eq!(*selection.kept[0].block, 1);
        let blocks = selection.to_json();
        assert_eq!(blocks["floors_agree"], json!(false));
        let count = |key: &str| blocks[key].as_u64().unwrap();
        assert_eq!((count("measured"), count("kept")), (2, 0));
        assert_eq!(count("discarded_floor_moved"), 2);
        let judged = |target| selection.judged(target).is_met();
        assert!(!judged(Target::at_most("a", 1.0, 2.0)));
    }

    #[test]
    fn a_ratio_and_its_figures_are_of_one_block() {
        let selection_of = measured(&[100.0, 100.0, 120.0]);
        let selection = selection_of.select(|floor| *floor, |_| ());
        // Blocks 0 and 1 between floors of 100 and of 110.
        let quotient = selection.quotient(|kept| (*kept.block as f64, kept.floor(|floor| *floor)));
        assert_eq!((quotient.over, quotient.under), (0.0, 100.0));
        assert!(selection.judged(Target::at_most("a", 1.0, 2.0)).is_met());
    }

    #[test]
    fn two_floors_agree_within_the_bound_whichever_is_higher() {
        assert!(floors_agree(100.0, 125.0) && floors_agree(125.0, 100.0));
        assert!(!floors_agree(63_156.0, 532_717.0) && !floors_agree(0.0, 0.0));
    }

    #[test]
    fn measuring_goes_on_until_enough_blocks_agree_or_the_bound_is_reached() {
        let run = |floors: Vec<f64>| {
            let mut next = floors.into_iter().cycle();
            let floor = || Ok(next.next().unwrap_or_default());
            interleave(2, LIKE_FLOORS, floor, || Ok(()), |floor| *floor)
                .unwrap()
                .blocks
                .len()
        };
        assert_eq!(run(vec![1.0]), 2);
        assert_eq!(run(vec![1.0, 2.0, 2.0]), 5);
        assert_eq!(run(vec![1.0, 9.0]), 6);
    }

    #[test]
    fn line_floor_says_where_the_cores_are() {
        let floor = LineFloor::measure(&[136], 100).unwrap();
        assert_eq!(floor.bare.count(), 100);
        assert_eq!(floor.of_bytes(136).count(), 100);
        assert_eq!(floor.of_bytes(7), &floor.bare);
        let two = livetime_shm::allowed_cpus().len() > 1;
        assert_eq!(floor.placement() != Placement::OneCore, two);
    }
}
