//! What the kernel tells in files, read below a root so that tests can make up a machine.
//!
//! A file that is not there or cannot be read is `None`; no check fails for that alone, nor passes.

#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

/// A file system with `/proc` and `/sys`.
#[derive(Debug, Clone)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// This machine.
    pub(super) fn here() -> Self {
        Self {
            root: PathBuf::from("/"),
        }
    }

    /// A machine that a test made up.
    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The path of a file given from the root on.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file.trim_start_matches('/'))
    }

    /// The text of a file without the blanks around it.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The number that a file holds.
    pub(super) fn number(&self, file: &str) -> Option<i64> {
        self.text(file)?.parse().ok()
    }

    /// The cores of a list such as `2-3,6`.
    pub(super) fn cores(&self, file: &str) -> Option<Vec<usize>> {
        livetime_shm::parse_cpu_list(&self.text(file)?)
    }

    /// The word in brackets of a list of choices, such as `never` of `always [never]`.
    pub(super) fn choice(&self, file: &str) -> Option<String> {
        let text = self.text(file)?;
        let chosen = text.split_whitespace().find_map(|word| {
            let inner = word.strip_prefix('[')?.strip_suffix(']')?;
            Some(inner.to_owned())
        });
        chosen.or(Some(text))
    }

    /// Names in a directory, sorted.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory));
        let mut names: Vec<String> = (entries.into_iter().flatten().flatten())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Whether a program of this name runs.
    pub(super) fn is_running(&self, name: &str) -> bool {
        let is_process = |directory: &String| directory.bytes().all(|byte| byte.is_ascii_digit());
        let mut processes = self.names("/proc").into_iter().filter(is_process);
        processes
            .any(|process| self.text(&format!("/proc/{process}/comm")).as_deref() == Some(name))
    }

    /// Whether a path exists.
    pub(super) fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// The options that the kernel was booted with.
    pub(super) fn boot_option(&self, name: &str) -> Option<String> {
        let line = self.text("/proc/cmdline")?;
        line.split_whitespace().find_map(|word| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key == name).then(|| value.to_owned())
        })
    }
}

/// Cores as a list.
pub(super) fn cpu_list(cores: &[usize]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    let texts: Vec<String> = sorted.iter().map(usize::to_string).collect();
    texts.join(",")
}

/// A mask of cores in hexadecimal with commas, such as `/sys` has them.
pub(super) fn parse_cpu_mask(text: &str) -> Option<Vec<usize>> {
    let digits: String = text.chars().filter(|c| *c != ',').collect();
    let mut cores = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let bits = digit.to_digit(16)?;
        cores.extend(
            (0..4)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| place * 4 + bit),
        );
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_cores_are_read_and_lists_written() {
        assert_eq!(parse_cpu_mask("00000000,00000012"), Some(vec![1, 4]));
        assert_eq!(parse_cpu_mask("x"), None);
        assert_eq!(cpu_list(&[5, 2]), "2,5");
    }

    #[test]
    fn files_of_a_made_up_machine_are_read() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/cmdline", "quiet nohz_full=2-3 rcu_nocbs\n");
        put("sys/thp", "always [madvise] never\n");
        let system = System::at(root.path());
        assert_eq!(system.boot_option("nohz_full").as_deref(), Some("2-3"));
        assert_eq!(system.boot_option("rcu_nocbs").as_deref(), Some(""));
        assert_eq!(system.boot_option("isolcpus"), None);
        assert_eq!(system.choice("/sys/thp").as_deref(), Some("madvise"));
        assert_eq!(system.text("/sys/none"), None);
    }
}
