//! Object blocks: no words panic, and a block that parses emits the words that it came from.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::object::{ObjectBlockView, PhysicsObject};

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    let Ok(view) = ObjectBlockView::new_checked(&words) else {
        return;
    };
    let objects: Vec<PhysicsObject> = view.objects().collect();
    let mut out = vec![0; view.words()];
    assert_eq!(view.header().emit(objects.iter(), &mut out), view.words());
    assert_eq!(out, words[..view.words()]);
});
