//! Whether a result can be written where it is to go: asked before the work, not found out after it.

use std::fs::OpenOptions;
use std::path::Path;

/// Whether `path` can be written; what is in it stays, and nothing is left of a file that was not
/// there.
///
/// # Errors
/// What the system says, and what to do.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let was_there = path.exists();
    // To open a pipe would wait for its reader.
    if was_there && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let checked = opened.and_then(|_| match was_there {
        true => Ok(()),
        false => std::fs::remove_file(path),
    });
    checked.map_err(|error| {
        format!(
            "cannot write {}: {error}\nhelp: nothing was started; name a file that can be written",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_tried_and_left_as_it_was() {
        let folder = std::env::temp_dir().join(format!("livetime-place-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let page = folder.join("page.html");
        assert_eq!(check(&page), Ok(()));
        assert!(!page.exists());
        std::fs::write(&page, "old").unwrap();
        assert_eq!(check(&page), Ok(()));
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "old");
        for bad in [folder.join("none/page.html"), folder.clone()] {
            let said = check(&bad).unwrap_err();
            assert!(
                said.starts_with(&format!("cannot write {}: ", bad.display())),
                "{said}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
