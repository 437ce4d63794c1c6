//! Configurations of any text: reading never panics, it gives a configuration or problems, and
//! every problem can be rendered with its place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime::check_configuration;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(problems) = check_configuration("fuzz.toml", text) {
        assert!(!problems.is_empty(), "refused without a reason");
    }
});
