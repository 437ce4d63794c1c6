use livetime_wire::object::{
    HEADER_WORDS, OBJECT_WORDS, ObjectBlock, ObjectBlockParts, ObjectBlockView, ObjectError,
    ObjectKind, PhysicsObject,
};
use livetime_wire::part_words::PartWords;
use livetime_wire::{EventNumber, RunNumber};
use proptest::prelude::*;

use crate::golden::{assert_golden, golden_words};

const BLOCK: ObjectBlock = ObjectBlock {
    source_run: RunNumber(165_617),
    source_event: EventNumber(0x1_0000_0002),
    event_objects: 10,
};

const OBJECTS: [PhysicsObject; 2] = [
    PhysicsObject {
        kind: ObjectKind::Muon,
        index: 1,
        pt: 34.2464,
        eta: -0.988_48,
        phi: -0.498_704,
        charge: -1.0,
        dxy: 0.071_222_4,
    },
    PhysicsObject {
        kind: ObjectKind::Jet,
        index: 9,
        pt: 20.5,
        eta: 2.25,
        phi: 3.0,
        charge: 0.0,
        dxy: 0.0,
    },
];

fn emit(block: &ObjectBlock, objects: &[PhysicsObject]) -> Vec<u32> {
    let mut words = vec![0; ObjectBlock::words(objects.len())];
    assert_eq!(block.emit(objects.iter(), &mut words), words.len());
    words
}

#[test]
fn golden_block_is_emitted_and_read() {
    let golden = golden_words("object-block-v1.hex");
    let view = ObjectBlockView::new_checked(&golden).unwrap();
    assert_eq!(view.header(), BLOCK);
    assert_eq!(view.words(), golden.len());
    assert_eq!(view.objects().collect::<Vec<_>>(), OBJECTS);
    assert_golden("object-block-v1.hex", &emit(&BLOCK, &OBJECTS));
}

#[test]
fn errors_say_what_is_wrong() {
    let golden = golden_words("object-block-v1.hex");
    let with = |index: usize, value: u32| {
        let mut words = golden.clone();
        words[index] = value;
        ObjectBlockView::new_checked(&words).unwrap_err()
    };
    assert_eq!(
        with(0, 0x4F42_4A02),
        ObjectError::Magic { found: 0x4F42_4A02 }
    );
    assert_eq!(
        with(1, 2 << 16 | 17),
        ObjectError::Length {
            count: 2,
            words: 17
        }
    );
    let longer = ObjectError::TooShort {
        words: 18,
        needed: 24,
    };
    assert_eq!(with(1, 3 << 16 | 24), longer);
    assert_eq!(
        with(12, 9 << 16 | 6),
        ObjectError::Kind { index: 1, kind: 6 }
    );
    assert_eq!(with(6, 0), ObjectError::Kind { index: 0, kind: 0 });
    assert!(ObjectBlockView::new_checked(&golden[..5]).is_err());
}

fn any_object() -> impl Strategy<Value = PhysicsObject> {
    (1_u16..=5, any::<u16>(), any::<[u32; 5]>()).prop_map(|(kind, index, f)| PhysicsObject {
        kind: ObjectKind::from_code(kind).expect("1 to 5 are kinds"),
        index,
        pt: f32::from_bits(f[0]),
        eta: f32::from_bits(f[1]),
        phi: f32::from_bits(f[2]),
        charge: f32::from_bits(f[3]),
        dxy: f32::from_bits(f[4]),
    })
}

/// Bits, since NaN is not equal to itself.
fn bits(object: &PhysicsObject) -> [u32; 7] {
    let floats = [object.pt, object.eta, object.phi, object.charge, object.dxy];
    let [a, b, c, d, e] = floats.map(f32::to_bits);
    [object.kind as u32, u32::from(object.index), a, b, c, d, e]
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_back_whatever_follows(
        run: u32,
        event: u64,
        event_objects: u32,
        objects in prop::collection::vec(any_object(), 0..20),
        behind in prop::collection::vec(any::<u32>(), 0..10),
    ) {
        let block = ObjectBlock {
            source_run: RunNumber(run),
            source_event: EventNumber(event),
            event_objects,
        };
        let mut words = emit(&block, &objects);
        let length = words.len();
        words.extend(behind);
        let view = ObjectBlockView::new_checked(&words).unwrap();
        prop_assert_eq!(view.header(), block);
        prop_assert_eq!(view.words(), length);
        let read: Vec<_> = view.objects().map(|object| bits(&object)).collect();
        prop_assert_eq!(read, objects.iter().map(bits).collect::<Vec<_>>());
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(any::<u32>(), 0..60),
        count in 0_u32..12,
        framed: bool,
        cuts in (0_usize..60, 0_usize..60),
    ) {
        let mut words = words;
        if framed && words.len() >= HEADER_WORDS {
            words[0] = 0x4F42_4A01;
            words[1] = count << 16 | ObjectBlock::words(count as usize) as u32;
            for item in words[HEADER_WORDS..].chunks_mut(OBJECT_WORDS) {
                item[0] &= 0xFFFF_0007;
            }
        }
        let [first, second] = [cuts.0.min(cuts.1), cuts.0.max(cuts.1)].map(|cut| cut.min(words.len()));
        let parts = [&words[..first], &words[first..second], &words[second..]];
        let in_parts = ObjectBlockParts::new_checked(PartWords::new(&parts));
        let in_one = ObjectBlockView::new_checked(&words);
        match (&in_one, in_parts) {
            (Ok(one), Ok(parts)) => {
                prop_assert_eq!(parts.header(), one.header());
                let read: Vec<_> = parts.objects().map(|object| bits(&object)).collect();
                let expected: Vec<_> = one.objects().map(|object| bits(&object)).collect();
                prop_assert_eq!(read, expected);
            }
            (one, parts) => prop_assert_eq!(one.as_ref().err(), parts.as_ref().err()),
        }
        if let Ok(view) = in_one {
            prop_assert!(view.words() <= words.len());
            prop_assert_eq!(view.objects().len(), count as usize);
            prop_assert_eq!(view.objects().count(), count as usize);
        }
    }
}
