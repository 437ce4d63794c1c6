//! Where a result goes: whether it can be written there, asked before the work and not found out after
//! it, and the writing, of the whole or of nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use livetime_node::run_file::{LOOK_AT_DISK, is_without_room};
use livetime_shm::plain_file::create_part;

use crate::console::say;

/// Whether `path` can be written; what is in it stays, and nothing is left of a file that was not
/// there.
///
/// # Errors
/// What the system says, and what to do.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    // A link to a file that is not there yet is there itself, and stays.
    let was_there = fs::symlink_metadata(path).is_ok();
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

/// Refuses a file that is there: it may be the only copy of something. What is no plain file, such as a
/// pipe, is written to; whether anything can be written is for [`check`].
///
/// # Errors
/// What is there, and what to do.
pub(crate) fn check_new(path: &Path) -> Result<(), String> {
    check_kind(path, |_| false)
}

/// As [`check_new`], but a page or a drawing may be there: what made it can make it again.
///
/// # Errors
/// As [`check_new`].
pub(crate) fn check_page(path: &Path) -> Result<(), String> {
    check_kind(path, |kind| kind == Kind::Page)
}

/// A kind of file that a verb makes again at will, so that a former one gives way to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remade {
    /// How each of the kind begins, in letters of either case.
    pub(crate) begins: &'static [&'static str],
    /// What it is called in a refusal.
    pub(crate) name: &'static str,
}

impl Remade {
    /// The pages and drawings that this program writes.
    pub(crate) const PAGE: Self = Self {
        begins: &["<!doctype html", "<svg"],
        name: "page",
    };
}

/// Whether a file of this kind can be written at `path`: [`check`], and nothing is there, or a former
/// file of the kind that no run directory holds as its own.
///
/// # Errors
/// What is there or what the system says, and what to do.
pub(crate) fn check_remade(path: &Path, kind: &Remade) -> Result<(), String> {
    if !path.is_file() {
        return check(path);
    }
    let there = match begins_as(path, kind.begins) {
        Ok(true) if is_page_of_run(path) => "the page of the run beside it is there".to_owned(),
        Ok(true) => return check(path),
        Ok(false) => format!("a file is there that is no {} of this program", kind.name),
        Err(error) => format!("a file is there that cannot be read: {error}"),
    };
    Err(kept(path, &there))
}

/// Whether this is the page that a run left beside its run files: only `report` makes it again.
fn is_page_of_run(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let is_run_file = |name: &str| name.starts_with("events") && name.ends_with(".mcap");
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    path.file_name().is_some_and(|name| name == "report.html")
        && (beside.into_iter().flatten().flatten())
            .any(|entry| entry.file_name().to_str().is_some_and(is_run_file))
}

fn kept(path: &Path, there: &str) -> String {
    format!(
        "cannot write {}: {there}\nhelp: the file is kept; name one that is not there yet",
        path.display()
    )
}

/// What a file is, by how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As the pages and drawings do that this program writes.
    Page,
    /// As run files do.
    RunFile,
    Other,
}

fn check_kind(path: &Path, may_go: impl Fn(Kind) -> bool) -> Result<(), String> {
    if !path.is_file() {
        return Ok(());
    }
    let there = match kind_of(path) {
        Ok(kind) if may_go(kind) => return Ok(()),
        Ok(Kind::Page) => "a page or a drawing is there".to_owned(),
        Ok(Kind::RunFile) => "a file of a run is there".to_owned(),
        // Where a page might have gone it is to be said why this does not.
        Ok(Kind::Other) if may_go(Kind::Page) => {
            "a file is there that is no page of this program".to_owned()
        }
        Ok(Kind::Other) => "a file is there".to_owned(),
        Err(error) => format!("a file is there that cannot be read: {error}"),
    };
    Err(kept(path, &there))
}

fn kind_of(path: &Path) -> io::Result<Kind> {
    const RUN_FILE: &[u8] = b"\x89MCAP0\r\n";
    if begins_as(path, Remade::PAGE.begins)? {
        return Ok(Kind::Page);
    }
    Ok(match beginning(path, RUN_FILE.len())?.as_slice() {
        RUN_FILE => Kind::RunFile,
        _ => Kind::Other,
    })
}

/// Whether a file begins as one of these, in letters of either case.
fn begins_as(path: &Path, texts: &[&str]) -> io::Result<bool> {
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let begins = beginning(path, longest)?;
    Ok(texts.iter().any(|text| {
        let same = begins.get(..text.len());
        same.is_some_and(|same| same.eq_ignore_ascii_case(text.as_bytes()))
    }))
}

fn beginning(path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    let mut begins = Vec::new();
    File::open(path)?
        .take(bytes as u64)
        .read_to_end(&mut begins)?;
    Ok(begins)
}

/// Writes a file: a disk that is full or a program that dies leave what was there before, or nothing,
/// and never a part. What is no plain file, a pipe or a link, is written where it is.
///
/// # Errors
/// The file, and what the system says.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    write_when_room(path, contents, Duration::ZERO, &mut || false)
}

/// As [`write()`], but a disk without room is waited for as long as `patience`, or until `is_stopped`; who
/// waits says so.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_when_room(
    path: &Path,
    contents: impl AsRef<[u8]>,
    patience: Duration,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<(), String> {
    let mut since = None;
    loop {
        let Err(error) = write_now(path, contents.as_ref()) else {
            return Ok(());
        };
        let shown = path.display();
        if !is_without_room(&error) || patience.is_zero() {
            return Err(format!("cannot write {shown}: {error}"));
        }
        let began = *since.get_or_insert_with(|| {
            say(format_args!(
                "warning: the disk has no room for {shown}, which waits up to {patience:?} for it; a signal \
                 ends the wait"
            ));
            Instant::now()
        });
        if began.elapsed() >= patience || is_stopped() {
            return Err(format!("cannot write {shown}: {error}"));
        }
        std::thread::sleep(LOOK_AT_DISK);
    }
}

/// Removes a file that was made here and could not be written to its end, such as on a full disk: a part
/// of a result is none, and is in the way of the next try.
pub(crate) fn remove_unfinished(path: &Path) {
    // What cannot be removed stays, and the error of the writing says why it is not whole.
    let _stays = fs::remove_file(path);
}

fn write_now(path: &Path, contents: &[u8]) -> io::Result<()> {
    let is_plain = fs::symlink_metadata(path).map_or(true, |there| there.is_file());
    if !is_plain {
        return fs::write(path, contents);
    }
    match write_beside(path, contents) {
        // A file may be ours in a folder that is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => fs::write(path, contents),
        written => written,
    }
}

/// Writes a file of our own beside `path`, which takes its place when it is whole, and is removed where it
/// cannot be.
fn write_beside(path: &Path, contents: &[u8]) -> io::Result<()> {
    let (mut file, part) = create_part(path)?;
    let written = file.write_all(contents);
    let placed = written.and_then(|()| fs::rename(&part, path));
    placed.inspect_err(|_| remove_unfinished(&part))
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
        let link = folder.join("link.html");
        std::os::unix::fs::symlink("nothing.html", &link).unwrap();
        assert_eq!(check(&link), Ok(()));
        assert!(fs::symlink_metadata(&link).is_ok());
        for bad in [folder.join("none/page.html"), folder.clone()] {
            let said = check(&bad).unwrap_err();
            assert!(
                said.starts_with(&format!("cannot write {}: ", bad.display())),
                "{said}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_a_page_gives_way_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert_eq!((check_new(&file), check_page(&file)), (Ok(()), Ok(())));
        assert!(!file.exists());
        for (contents, is_page, there) in [
            (&b"<!DOCTYPE html>\n"[..], true, "a page or a drawing is"),
            (b"<svg viewBox", true, "a page or a drawing is"),
            (b"\x89MCAP0\r\n.", false, "a file of a run is there"),
            (b"1 2 3\n", false, "a file is there\n"),
            (b"", false, "a file is there\n"),
        ] {
            fs::write(&file, contents).unwrap();
            assert_eq!(check_page(&file).is_ok(), is_page, "{there}");
            let is_other = there.ends_with('\n');
            let refused = check_page(&file).err().unwrap_or_default();
            assert_eq!(refused.contains("that is no page of this"), is_other);
            let said = check_new(&file).unwrap_err();
            let begin = format!("cannot write {}: {there}", file.display());
            assert!(said.starts_with(&begin), "{said}");
            assert_eq!(fs::read(&file).unwrap(), contents);
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(check_new(&link).is_err() && check_page(&link).is_err());
        assert_eq!(check_new(Path::new("/dev/null")), Ok(()));
    }

    #[test]
    fn a_file_gives_way_to_one_of_its_kind_and_never_where_it_is_of_a_run() {
        const TABLE: Remade = Remade {
            begins: &["time_us,efficiency\n", "time_us,rate\n"],
            name: "table",
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.html");
        assert_eq!(check_remade(&file, &TABLE), Ok(()));
        assert!(!file.exists());
        for (contents, kind, may_go) in [
            ("<!doctype html>\n", Remade::PAGE, true),
            ("<!doctype html>\n", TABLE, false),
            ("time_us,rate\n1,2\n", TABLE, true),
            ("time_us,rate_hz\n1,2\n", TABLE, false),
            ("time_us,rate\n1,2\n", Remade::PAGE, false),
            ("", TABLE, false),
        ] {
            fs::write(&file, contents).unwrap();
            let checked = check_remade(&file, &kind);
            assert_eq!(checked.is_ok(), may_go, "{contents:?}: {checked:?}");
            let said = format!("a file is there that is no {} of this program\n", kind.name);
            assert!(checked.err().is_none_or(|error| error.contains(&said)));
            assert_eq!(fs::read_to_string(&file).unwrap(), contents);
        }
        fs::write(&file, "<!doctype html>\n").unwrap();
        fs::write(folder.path().join("events.0000.mcap"), "").unwrap();
        let said = check_remade(&file, &Remade::PAGE).unwrap_err();
        assert!(said.contains("the page of the run beside it"), "{said}");
        let other = folder.path().join("other.html");
        fs::write(&other, "<!doctype html>\n").unwrap();
        assert_eq!(check_remade(&other, &Remade::PAGE), Ok(()));
        check_remade(&folder.path().join("none/x"), &TABLE).unwrap_err();
        assert_eq!(check_remade(Path::new("/dev/null"), &TABLE), Ok(()));
    }

    #[test]
    fn a_disk_without_room_is_waited_for_until_somebody_ends_that() {
        const HOUR: Duration = Duration::from_secs(3600);
        let mut looks = 0;
        let full = Path::new("/dev/full");
        let said = write_when_room(full, "x", HOUR, &mut || {
            looks += 1;
            looks == 2
        });
        let said = said.unwrap_err();
        assert!(said.starts_with("cannot write /dev/full: "), "{said}");
        assert_eq!(looks, 2);
        let never = &mut || panic!("there is no patience");
        write_when_room(full, "x", Duration::ZERO, never).unwrap_err();
        // Room that is made meanwhile.
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        std::os::unix::fs::symlink(full, &page).unwrap();
        let made = &mut || {
            fs::remove_file(&page).unwrap();
            false
        };
        assert_eq!(write_when_room(&page, "x", HOUR, made), Ok(()));
        assert_eq!(fs::read_to_string(&page).unwrap(), "x");
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        write(&page, "first").unwrap();
        write(&page, "second").unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // What is behind a link or a device is written where it is.
        let link = folder.path().join("link.html");
        std::os::unix::fs::symlink(&page, &link).unwrap();
        write(&link, "fourth").unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), "fourth");
        assert!(link.is_symlink());
        let full = write(Path::new("/dev/full"), "fifth").unwrap_err();
        assert!(full.starts_with("cannot write /dev/full: "), "{full}");
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| {
            let name = entry.unwrap().file_name();
            name.into_string().unwrap()
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Also what has the name of the file with an ending, and names that unfinished files might have.
    #[test]
    fn what_lies_beside_a_file_is_somebody_elses() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let ours = ["file.html", "link.html", "folder.html", "pipe.html"];
        fs::write(at("file.html.new"), "mine").unwrap();
        fs::write(at("target"), "mine").unwrap();
        std::os::unix::fs::symlink(at("target"), at("link.html.new")).unwrap();
        fs::create_dir(at("folder.html.new")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, at("pipe.html.new"), FileType::Fifo, mode, 0).unwrap();
        let (_, part) = create_part(&at("file.html")).unwrap();
        fs::remove_file(&part).unwrap();
        let name = part.file_name().unwrap().to_str().unwrap();
        let (process, number) = name
            .strip_suffix(".part")
            .unwrap()
            .rsplit_once('-')
            .unwrap();
        let number: u64 = number.parse().unwrap();
        for number in number + 1..number + 21 {
            let part = at(&format!("{process}-{number}.part"));
            std::os::unix::fs::symlink(at("target"), part).unwrap();
        }
        let before = names_in(folder.path());
        for name in ours {
            write(&at(name), name).unwrap();
        }
        for name in ours {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), name);
            fs::remove_file(at(name)).unwrap();
        }
        assert_eq!(names_in(folder.path()), before);
        for name in ["file.html.new", "link.html.new", "target"] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "mine", "{name}");
        }
        assert!(at("link.html.new").is_symlink());
    }

    #[test]
    fn a_name_may_be_as_long_as_names_can_be_and_of_a_longer_one_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let longest = "x".repeat(255);
        write(&folder.path().join(&longest), "x").unwrap();
        write(&folder.path().join("x".repeat(256)), "x").unwrap_err();
        assert_eq!(names_in(folder.path()), [longest]);
    }

    #[test]
    fn of_two_who_write_one_page_at_once_one_comes_out_whole() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        let texts = ["a", "b"].map(|text| text.repeat(1 << 20));
        let write_often = |text: &str| (0..20).for_each(|_| write(&page, text).unwrap());
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| write_often(text));
            }
        });
        let found = fs::read_to_string(&page).unwrap();
        assert!(texts.contains(&found), "{} bytes", found.len());
        assert_eq!(names_in(folder.path()), ["page.html"]);
    }
}
