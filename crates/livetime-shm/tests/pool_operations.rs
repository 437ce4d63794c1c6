//! Random operations on a page pool, compared with a model; then many threads on one pool.
//!
//! Verified: states, holds, counts, contents, errors. Not verified here: a process that dies (see
//! `two_processes.rs`), weak orderings (see `loom.rs`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use livetime_shm::{
    HugePages, PageError, PageIndex, PagePool, PageReader, PageState, PageWriter, PoolConfig,
    PoolCounts,
};
use proptest::prelude::*;

const PAGES: u32 = 4;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Write(u32),
    Store(u32, u32),
    Finish(u32),
    Abandon(u32),
    Read(u32),
    EndRead(u32),
    Release(u32),
}

fn operation() -> impl Strategy<Value = Operation> {
    let page = 0..PAGES + 1;
    prop_oneof![
        page.clone().prop_map(Operation::Write),
        (page.clone(), any::<u32>()).prop_map(|(page, value)| Operation::Store(page, value)),
        page.clone().prop_map(Operation::Finish),
        page.clone().prop_map(Operation::Abandon),
        page.clone().prop_map(Operation::Read),
        page.clone().prop_map(Operation::EndRead),
        page.prop_map(Operation::Release),
    ]
}

/// One page as it should be, with the real handles on it.
#[derive(Default)]
struct ModelPage {
    writer: Option<PageWriter>,
    is_filled: bool,
    readers: Vec<PageReader>,
    value: u32,
}

impl ModelPage {
    fn state(&self) -> PageState {
        match (&self.writer, self.is_filled) {
            (Some(_), _) => PageState::Writing,
            (None, true) => PageState::Filled,
            (None, false) => PageState::Free,
        }
    }
}

fn apply(pools: &[PagePool; 2], model: &mut BTreeMap<u32, ModelPage>, step: usize, op: Operation) {
    // Two processes in one: each step by either of two openings of the pool.
    let pool = &pools[step % 2];
    let (Operation::Write(index)
    | Operation::Store(index, _)
    | Operation::Finish(index)
    | Operation::Abandon(index)
    | Operation::Read(index)
    | Operation::EndRead(index)
    | Operation::Release(index)) = op;
    let page = PageIndex(index);
    let Some(expected) = model.get_mut(&index) else {
        let out_of_range = PageError::OutOfRange { page, pages: PAGES };
        assert_eq!(pool.write(page).err(), Some(out_of_range));
        assert_eq!(pool.read(page).err(), Some(out_of_range));
        assert_eq!(pool.release(page), Err(out_of_range));
        return;
    };
    let found = expected.state();
    match op {
        Operation::Write(_) => match pool.write(page) {
            Ok(writer) => {
                assert_eq!(found, PageState::Free);
                expected.writer = Some(writer);
            }
            Err(error) => {
                assert_ne!(found, PageState::Free);
                let wanted = PageState::Free;
                assert_eq!(
                    error,
                    PageError::WrongState {
                        page,
                        found,
                        wanted
                    }
                );
            }
        },
        Operation::Store(_, value) => {
            if let Some(writer) = &mut expected.writer {
                writer.fill(value);
                expected.value = value;
            }
        }
        Operation::Finish(_) => {
            if let Some(writer) = expected.writer.take() {
                assert_eq!(writer.finish(), page);
                expected.is_filled = true;
            }
        }
        Operation::Abandon(_) => drop(expected.writer.take()),
        Operation::Read(_) => match pool.read(page) {
            Ok(reader) => {
                assert_eq!(found, PageState::Filled);
                assert!(reader.iter().all(|word| *word == expected.value));
                expected.readers.push(reader);
            }
            Err(error) => {
                let wanted = PageState::Filled;
                assert_eq!(
                    error,
                    PageError::WrongState {
                        page,
                        found,
                        wanted
                    }
                );
            }
        },
        Operation::EndRead(_) => drop(expected.readers.pop()),
        Operation::Release(_) => {
            let readers = expected.readers.len() as u32;
            let right = match found {
                PageState::Filled if readers > 0 => Err(PageError::InUse { page, readers }),
                PageState::Filled => Ok(()),
                _ => Err(PageError::WrongState {
                    page,
                    found,
                    wanted: PageState::Filled,
                }),
            };
            assert_eq!(pool.release(page), right);
            expected.is_filled &= right.is_err();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn pages_keep_their_states(operations in prop::collection::vec(operation(), 0..200)) {
        let config = PoolConfig { pages: PAGES, page_bytes: 128, huge_pages: HugePages::Never };
        let first = PagePool::create(&config).unwrap();
        let second = PagePool::open(first.fd().try_clone_to_owned().unwrap()).unwrap();
        prop_assert_ne!(first.owner(), second.owner());
        let pools = [first, second];
        let mut model: BTreeMap<u32, ModelPage> =
            (0..PAGES).map(|page| (page, ModelPage::default())).collect();
        for (step, operation) in operations.into_iter().enumerate() {
            apply(&pools, &mut model, step, operation);
            let count = |state| model.values().filter(|page| page.state() == state).count() as u32;
            let expected = PoolCounts {
                free: count(PageState::Free),
                writing: count(PageState::Writing),
                filled: count(PageState::Filled),
                holds: model.values().map(|page| page.readers.len() as u32).sum(),
            };
            prop_assert_eq!(pools[0].counts(), expected);
            for (index, page) in &model {
                prop_assert_eq!(pools[1].state(PageIndex(*index)), Ok(page.state()));
            }
        }
        drop(model);
        prop_assert_eq!(pools[0].counts().writing, 0);
        prop_assert_eq!(pools[0].counts().holds, 0);
    }
}

#[test]
fn threads_pass_pages_without_tearing_or_losing_any() {
    const ROUNDS: u32 = 20_000;
    let config = PoolConfig {
        pages: 8,
        page_bytes: 256,
        huge_pages: HugePages::Never,
    };
    let pool = PagePool::create(&config).unwrap();
    let released = Mutex::new(0u32);
    thread::scope(|scope| {
        for worker in 0..4u32 {
            let (pool, released) = (pool.clone(), &released);
            scope.spawn(move || {
                let mut own_released = 0;
                for round in 0..ROUNDS {
                    let page = PageIndex((round.wrapping_mul(7) + worker) % 8);
                    if let Ok(mut writer) = pool.write(page) {
                        writer.fill(worker << 24 | round);
                        if round % 5 == 0 {
                            drop(writer);
                        } else {
                            writer.finish();
                        }
                    }
                    if let Ok(reader) = pool.read(page) {
                        let first = reader[0];
                        assert!(reader.iter().all(|word| *word == first), "torn page");
                    }
                    own_released += u32::from(pool.release(page).is_ok());
                }
                *released.lock().unwrap() += own_released;
            });
        }
    });
    let counts = pool.counts();
    assert_eq!((counts.writing, counts.holds), (0, 0));
    assert_eq!(counts.free + counts.filled, 8);
    assert!(*released.lock().unwrap() > 0);
}

#[test]
fn a_writer_and_a_reader_outlive_the_pool_handle() {
    let config = PoolConfig {
        pages: 2,
        page_bytes: 64,
        huge_pages: HugePages::Never,
    };
    let pool = PagePool::create(&config).unwrap();
    let mut writer = pool.write(PageIndex(1)).unwrap();
    drop(pool);
    let moved = thread::spawn(move || {
        writer[15] = 99;
        writer
    });
    let writer = moved.join().unwrap();
    assert_eq!(writer[15], 99);
    assert_eq!(writer.finish(), PageIndex(1));
}

#[test]
fn every_owner_has_a_place_until_there_is_none() {
    let config = PoolConfig {
        pages: 1,
        page_bytes: 64,
        huge_pages: HugePages::Never,
    };
    let pool = PagePool::create(&config).unwrap();
    let open = || PagePool::open(pool.fd().try_clone_to_owned().unwrap());
    let others: Vec<PagePool> = (1..30).map(|_| open().unwrap()).collect();
    assert!(matches!(open(), Err(livetime_shm::PoolError::OwnersFull)));
    assert_eq!(pool.owners().len(), 30);
    drop(others);
    assert_eq!(pool.owners().len(), 1);
    open().unwrap();
}
