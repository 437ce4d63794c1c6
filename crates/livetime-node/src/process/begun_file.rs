//! A run file that a coordinator has begun, put where the host of its writer goes on with it.
//!
//! Hosts may share the folder: then it is there, and as it was begun. On a folder of its own a host
//! looks whether another run is there, as the coordinator does on its own: runs are never
//! overwritten, and never go on in the file of another.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use livetime_store::FileName;

use super::host_document::BegunFile;

const ADVICE: &str = "choose another `--out`, runs are never overwritten";

/// Puts the file there unless it is there, which is returned; `all` are those of the run.
///
/// # Errors
/// What is in the way, or what the file system says.
pub(super) fn begin(file: &BegunFile, all: &[BegunFile]) -> Result<bool, String> {
    let path = Path::new(&file.path);
    let failed = |error: std::io::Error| failed(path, &error);
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    match File::create_new(path) {
        Ok(begun) => fill(begun, path, all, |begun| begun.write_all(&file.begun)).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            match fs::read(path).map_err(failed)? == file.begun {
                true => Ok(false),
                false => Err(format!("{}: is of another run; {ADVICE}", path.display())),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

/// Writes into a file that was made just now, unless its folder has a file of another run. Where that
/// fails it is gone again: half of one is in the way of the next run.
fn fill(
    mut begun: File,
    path: &Path,
    all: &[BegunFile],
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let filled = match file_of_another_run(folder, all) {
        Ok(None) => write(&mut begun).map_err(|error| failed(path, &error)),
        Ok(Some(other)) => {
            let folder = folder.display();
            Err(format!(
                "{folder} already holds a run, or a part of one: {other}; {ADVICE}"
            ))
        }
        Err(error) => Err(failed(folder, &error)),
    };
    if filled.is_err() {
        remove(path);
    }
    filled
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Removes a file that was put there, with its folder if nothing else is in it.
fn remove(path: &Path) {
    // What cannot be removed stays.
    let _stays = fs::remove_file(path);
    let _not_empty = path.parent().map(fs::remove_dir);
}

/// Removes a file that was put there for a run that has not started, with its folder if nothing else is
/// in it: it would be in the way of the next.
pub(super) fn abandon(file: &BegunFile) {
    let path = Path::new(&file.path);
    if fs::read(path).is_ok_and(|found| found == file.begun) {
        remove(path);
    }
}

/// A file in a folder that a run has written, and not this one.
fn file_of_another_run(folder: &Path, all: &[BegunFile]) -> std::io::Result<Option<String>> {
    let is_own = |name: &str| all.iter().any(|file| Path::new(&file.path).ends_with(name));
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_of_run = FileName::parse(name).is_some() || name == "summary.json";
        if is_of_run && !is_own(name) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(folder: &Path, name: &str) -> BegunFile {
        BegunFile {
            path: folder.join(name).display().to_string(),
            begun: b"begun".to_vec(),
        }
    }

    #[test]
    fn a_file_is_begun_once_on_its_own_folder_or_a_shared_one() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("runs/out");
        let files = ["events.mcap", "events-1.mcap"].map(|name| begun(&out, name));
        for is_new in [true, false] {
            for file in &files {
                assert_eq!(begin(file, &files), Ok(is_new));
                assert_eq!(fs::read(&file.path).unwrap(), b"begun");
            }
        }
        fs::write(&files[1].path, "begun, and gone on with").unwrap();
        files.iter().for_each(abandon);
        assert!(!Path::new(&files[0].path).exists());
        assert!(Path::new(&files[1].path).exists(), "it has events");
        fs::write(&files[1].path, "begun").unwrap();
        abandon(&files[1]);
        assert!(!out.exists(), "nothing else is there");
        // The null device of a run that keeps nothing.
        let none = BegunFile {
            path: "/dev/null".to_owned(),
            begun: Vec::new(),
        };
        assert_eq!(begin(&none, std::slice::from_ref(&none)), Ok(false));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        let file = begun(&out, "events.mcap");
        let path = Path::new(&file.path);
        let half = |begun: &mut File| -> std::io::Result<()> {
            begun.write_all(b"beg")?;
            Err(ErrorKind::StorageFull.into())
        };
        let made = File::create_new(path).unwrap();
        let refused = fill(made, path, std::slice::from_ref(&file), half).unwrap_err();
        assert!(refused.contains("events.mcap: "), "{refused}");
        assert!(!out.exists(), "it is as if nothing had been begun");
        assert_eq!(begin(&file, std::slice::from_ref(&file)), Ok(true));
        assert_eq!(fs::read(path).unwrap(), b"begun");
    }

    #[test]
    fn nothing_is_written_into_the_file_or_the_folder_of_another_run() {
        let folder = tempfile::tempdir().unwrap();
        let files = [begun(folder.path(), "events.mcap")];
        fs::write(&files[0].path, "begun and gone on with").unwrap();
        let refused = begin(&files[0], &files).unwrap_err();
        assert!(
            refused.ends_with(
                "events.mcap: is of another run; choose another `--out`, runs are never overwritten"
            ),
            "{refused}"
        );
        assert_eq!(fs::read(&files[0].path).unwrap(), b"begun and gone on with");
        fs::remove_file(&files[0].path).unwrap();
        for foreign in [
            "events.0001.mcap",
            "events-1.mcap",
            "events.z.mcap",
            "summary.json",
        ] {
            let foreign_path = folder.path().join(foreign);
            fs::write(&foreign_path, "").unwrap();
            let refused = begin(&files[0], &files).unwrap_err();
            assert!(
                refused.contains(&format!("a part of one: {foreign}; ")),
                "{refused}"
            );
            assert!(!Path::new(&files[0].path).exists(), "it is as it was");
            fs::remove_file(foreign_path).unwrap();
        }
        assert_eq!(begin(&files[0], &files), Ok(true));
    }
}
