//! What outlives the daemon: conditions and sinks that somebody gave up, in a small file.
//!
//! Who disowns a condition says that it is to stay. With a state file it also stays across starts
//! of the daemon: the file is written anew, whole, soon after each such change and at the end, and
//! read before the first client comes. It stays where somebody has taken it since, and is nobody's
//! again after the start, as after the end of that one's connection. What clients made and own is not
//! kept; they make it again, as the client libraries do by themselves. Nothing here is on the data
//! path.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use livetime_shm::plain_file;
use livetime_timing::registry::Sink;
use livetime_timing::sink::OFFSET_NS_USUAL;
use livetime_timing::{
    ActionFlag, Caller, Change, ClientId, Condition, ConditionSpec, FlagSet, IdFilter, Lifetime,
    Ownership, Registry, Role, SinkId, SinkKind, SinkSpec,
};
use livetime_wire::EventId;
use serde_json::{Value, json};

use crate::control::{Control, ControlError};

/// Name of the format.
pub const KEPT_SCHEMA: &str = "livetime.timing_kept/1";
/// Largest file that is read, bytes.
const FILE_MAX: u64 = 64 << 20;
/// Symbolic links that are followed at most, as the kernel does.
const LINKS_MAX: usize = 40;
/// Who restores: gone again before the first client comes.
const DAEMON: Caller = Caller {
    client: ClientId(0),
    role: Role::Admin,
};

/// Why the state could not be kept or restored.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The file cannot be read or written.
    #[error("cannot {step} state file {path}: {source}")]
    File {
        /// What was tried.
        step: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another daemon keeps it.
    #[error(
        "state file {path} is kept by another daemon, which holds {lock}; \
         give each daemon a file of its own"
    )]
    InUse {
        /// Which file.
        path: PathBuf,
        /// What is locked.
        lock: PathBuf,
    },
    /// The file does not say what it should.
    #[error("state file {path}: {what}; correct it, or move it away to start with nothing")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// What it says cannot be done.
    #[error("state file {path}: {source}; correct it, or move it away to start with nothing")]
    Control {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: Box<ControlError>,
    },
}

/// Keeps one file as the registry is.
#[derive(Debug)]
pub struct StateKeeper {
    path: PathBuf,
    revision: u64,
    written: String,
    /// Locked as long as this lives.
    _lock: File,
}

impl StateKeeper {
    /// Restores what the file says, if there is one.
    ///
    /// # Errors
    /// [`KeptError`] when it cannot be read or does not fit this receiver; the daemon had better
    /// not start without what it was to keep.
    pub fn restore(path: &Path, control: &Control) -> Result<Self, KeptError> {
        let path = &real_path(path);
        let failed = |source| KeptError::File {
            step: "read",
            path: path.to_owned(),
            source,
        };
        // Nothing is put beside what can be no state file.
        plain_file::check_place(path).map_err(failed)?;
        let lock = lock(path)?;
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
            Ok(data) if data.len() > FILE_MAX => {
                return Err(KeptError::Content {
                    path: path.to_owned(),
                    what: format!("it has {} bytes, allowed is {FILE_MAX}", data.len()),
                });
            }
            Ok(_) => Some(plain_file::read_text(path, FILE_MAX).map_err(failed)?),
        };
        if let Some(text) = &text {
            restore_text(path, text, control)?;
        }
        Ok(Self {
            path: path.to_owned(),
            revision: control.revision(),
            written: text.unwrap_or_default(),
            _lock: lock,
        })
    }

    /// Writes the file anew if what it should say has changed; a file half written is never seen.
    ///
    /// # Errors
    /// [`KeptError::File`]; the next look tries again.
    pub fn look(&mut self, control: &Control) -> Result<(), KeptError> {
        let revision = control.revision();
        if revision == self.revision {
            return Ok(());
        }
        let text = control.read(text_of);
        if text != self.written {
            self.write(&text)?;
            self.written = text;
        }
        self.revision = revision;
        Ok(())
    }

    fn write(&self, text: &str) -> Result<(), KeptError> {
        let failed = |source| KeptError::File {
            step: "write",
            path: self.path.clone(),
            source,
        };
        let (mut file, part) = plain_file::create_part(&self.path).map_err(failed)?;
        let written = file.write_all(text.as_bytes());
        let placed = written
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&part, &self.path));
        placed.map_err(|source| {
            // Whoever reads the error sees that it could not be written; the part says no more.
            let _stays = fs::remove_file(&part);
            failed(source)
        })
    }
}

/// The file behind symbolic links, whether it is there or not, so that whoever names it otherwise
/// finds the same lock, and what is written anew is that file and not the link.
fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        // It cannot be written there, which is said when it is tried.
        _ => path,
    }
}

/// The path with an ending more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(ending);
    beside.into()
}

/// Locks the file beside a state file, which stays: the state file itself is another one after each
/// change.
fn lock(path: &Path) -> Result<File, KeptError> {
    let lock = beside(path, ".lock");
    let failed = |source| KeptError::File {
        step: "lock",
        path: lock.clone(),
        source,
    };
    let file = open_lock(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(KeptError::InUse {
            path: path.to_owned(),
            lock,
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Only to be locked: what is there already stays as it is, and may be somebody's file.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    // Whoever may write in the folder shall not have us open a file elsewhere, nor others hold the lock.
    plain_file::open_unlinked(path, options.mode(0o600))
}

/// Whether somebody gave it up, whoever has taken it since.
fn is_kept(ownership: &Ownership) -> bool {
    ownership.lifetime != Lifetime::WithOwner
}

/// What the file says of a registry.
fn text_of(registry: &Registry) -> String {
    // Sinks of hardware are there anyway: only software sinks are made by clients. Of the others
    // stays what they may.
    let sinks: Vec<Value> = registry
        .sinks()
        .filter(|sink| sink.spec.kind == SinkKind::Software && is_kept(&sink.ownership))
        .map(|sink| offsets_json("name", sink))
        .collect();
    let offsets: Vec<Value> = registry
        .sinks()
        .filter(|sink| sink.spec.kind != SinkKind::Software && !has_usual_offsets(&sink.spec))
        .map(|sink| offsets_json("sink", sink))
        .collect();
    // In their order, since of equal filters the older one acts first.
    let conditions: Vec<Value> = registry
        .conditions_by_age()
        .into_iter()
        .filter(|condition| is_kept(&condition.ownership))
        .filter_map(|condition| condition_json(registry, condition))
        .collect();
    let document = json!({
        "schema": KEPT_SCHEMA,
        "sinks": sinks,
        "offsets": offsets,
        "conditions": conditions,
    });
    format!("{document:#}\n")
}

fn has_usual_offsets(spec: &SinkSpec) -> bool {
    (spec.offset_min_ns, spec.offset_max_ns) == (-OFFSET_NS_USUAL, OFFSET_NS_USUAL)
}

fn offsets_json(name: &str, sink: &Sink) -> Value {
    json!({
        name: sink.spec.name,
        "offset_min_ns": sink.spec.offset_min_ns,
        "offset_max_ns": sink.spec.offset_max_ns,
    })
}

fn condition_json(registry: &Registry, condition: &Condition) -> Option<Value> {
    let spec = &condition.spec;
    let sink = registry.sink(spec.sink).filter(|sink| {
        // Of a sink that goes with its owner nothing stays.
        sink.spec.kind != SinkKind::Software || is_kept(&sink.ownership)
    })?;
    let (id, mask) = spec.filter.id_and_mask();
    let accept: Vec<&str> = ActionFlag::ALL
        .into_iter()
        .filter(|flag| spec.accept.contains(*flag))
        .map(ActionFlag::key)
        .collect();
    Some(json!({
        "sink": sink.spec.name,
        "id": id.to_string(),
        "mask": EventId(mask).to_string(),
        "offset_ns": spec.offset_ns,
        "tag": spec.tag,
        "accept": accept,
        "active": spec.active,
    }))
}

fn restore_text(path: &Path, text: &str, control: &Control) -> Result<(), KeptError> {
    let wrong = |what: String| KeptError::Content {
        path: path.to_owned(),
        what,
    };
    let refused = |source: ControlError| KeptError::Control {
        path: path.to_owned(),
        source: Box::new(source),
    };
    if text.trim().is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    let document: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if document["schema"] != KEPT_SCHEMA {
        let found = document["schema"].as_str().unwrap_or("nothing");
        return Err(wrong(format!("schema is {found}, expected {KEPT_SCHEMA}")));
    }
    let mut bounds = Vec::new();
    for (index, sink) in entries(&document, "sinks").map_err(&wrong)? {
        let (name, offsets) = offsets_of("sink", "name", index, sink).map_err(&wrong)?;
        let spec = SinkSpec::new(SinkKind::Software, name);
        let id = control.create_sink(&DAEMON, spec).map_err(refused)?;
        control.own_sink(&DAEMON, id, false).map_err(refused)?;
        bounds.push((id, offsets));
    }
    // Files of before have none of these.
    let of_fixed = match document.get("offsets") {
        Some(_) => entries(&document, "offsets").map_err(&wrong)?.collect(),
        None => Vec::new(),
    };
    for (index, sink) in of_fixed {
        let (name, offsets) = offsets_of("offsets", "sink", index, sink).map_err(&wrong)?;
        let id = sink_of_name(control, "offsets", index, name).map_err(&wrong)?;
        bounds.push((id, offsets));
    }
    // Bounds that were narrowed left the conditions there were as they are.
    for (id, _) in &bounds {
        let all = control.set_offsets(&DAEMON, *id, i64::MIN, i64::MAX);
        all.map_err(refused)?;
    }
    let mut added = Vec::new();
    for (index, condition) in entries(&document, "conditions").map_err(&wrong)? {
        let spec = condition_spec(control, index, condition).map_err(&wrong)?;
        added.push(Change::Add(spec));
    }
    // All of them or none: half of a set is not what anybody wanted.
    let applied = control.apply(&DAEMON, &added).map_err(refused)?;
    let disowned: Vec<Change> = applied.added.into_iter().map(Change::Disown).collect();
    control.apply(&DAEMON, &disowned).map_err(refused)?;
    for (id, (min_ns, max_ns)) in bounds {
        let set = control.set_offsets(&DAEMON, id, min_ns, max_ns);
        set.map_err(refused)?;
    }
    Ok(())
}

/// Name and bounds of the offsets of a sink.
fn offsets_of<'a>(
    what: &str,
    name: &str,
    index: usize,
    sink: &'a Value,
) -> Result<(&'a str, (i64, i64)), String> {
    let field = |name: &str| missing(what, index, name);
    let of = sink[name].as_str().ok_or_else(|| field(name))?;
    let offset = |key: &str| sink[key].as_i64().ok_or_else(|| field(key));
    Ok((of, (offset("offset_min_ns")?, offset("offset_max_ns")?)))
}

fn sink_of_name(control: &Control, what: &str, index: usize, name: &str) -> Result<SinkId, String> {
    let sink = control.read(|registry| registry.sink_by_name(name).map(|sink| sink.id));
    sink.ok_or_else(|| {
        format!("{what} {index} is of sink {name}, which this receiver does not have")
    })
}

fn entries<'a>(
    document: &'a Value,
    name: &str,
) -> Result<impl Iterator<Item = (usize, &'a Value)>, String> {
    let list = document[name].as_array();
    let list = list.ok_or_else(|| format!("there is no list `{name}`"))?;
    Ok(list.iter().enumerate())
}

fn missing(what: &str, index: usize, field: &str) -> String {
    format!("{what} {index} has no usable `{field}`")
}

fn condition_spec(
    control: &Control,
    index: usize,
    condition: &Value,
) -> Result<ConditionSpec, String> {
    let field = |name| missing("condition", index, name);
    let text = |name| condition[name].as_str().ok_or_else(|| field(name));
    let name = text("sink")?;
    let sink = sink_of_name(control, "condition", index, name)?;
    let bits = |name| text(name)?.parse::<EventId>().map_err(|_| field(name));
    let filter = IdFilter::masked(bits("id")?, bits("mask")?.0)
        .map_err(|error| format!("condition {index}: {error}"))?;
    let tag = condition["tag"].as_u64();
    let tag = tag.and_then(|tag| u32::try_from(tag).ok());
    let mut accept = FlagSet::NONE;
    for flag in condition["accept"].as_array().into_iter().flatten() {
        let known = ActionFlag::ALL
            .into_iter()
            .find(|known| *flag == known.key());
        accept = accept.with(known.ok_or_else(|| field("accept"))?);
    }
    Ok(ConditionSpec {
        offset_ns: condition["offset_ns"]
            .as_i64()
            .ok_or_else(|| field("offset_ns"))?,
        accept,
        active: condition["active"]
            .as_bool()
            .ok_or_else(|| field("active"))?,
        ..ConditionSpec::new(sink, filter, tag.ok_or_else(|| field("tag"))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_path_whatever_link_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("inner")).unwrap();
        let file = folder.path().canonicalize().unwrap().join("kept.json");
        std::os::unix::fs::symlink("kept.json", at("link")).unwrap();
        std::os::unix::fs::symlink("../link", at("inner/link")).unwrap();
        for there in [false, true] {
            for name in ["kept.json", "link", "inner/link", "inner/../kept.json"] {
                assert_eq!(real_path(&at(name)), file, "{name}, {there}");
            }
            std::fs::write(&file, "").unwrap();
        }
        let first = lock(&real_path(&at("link"))).unwrap();
        let second = lock(&real_path(&at("kept.json"))).unwrap_err();
        assert!(second.to_string().contains("is kept by another daemon"));
        drop(first);
        let nowhere = at("none/kept.json");
        assert_eq!(real_path(&nowhere), nowhere);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_lock_is_no_lock_and_nobody_waits_for_it() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let pipe = beside(&file, ".lock");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let said = lock(&file).unwrap_err().to_string();
        assert!(said.ends_with(".lock: no plain file but a pipe"), "{said}");
    }
}
