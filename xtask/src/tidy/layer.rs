//! The layer rule: crates depend downwards only, and cores of layer 1 never on each other.
//!
//! The table is the one of ARCHITECTURE.md. Dev-dependencies count like all others: scenario
//! tests that need several cores live in the simulator's crate.

use std::path::Path;

use cargo_metadata::MetadataCommand;

use super::Finding;
use crate::Failure;

const RULE: &str = "layer";

/// What a crate may depend on, among the crates of the workspace.
enum Allowed {
    Only(&'static [&'static str]),
    /// Everything in layers below its own.
    Below,
}

struct Place {
    name: &'static str,
    layer: u8,
    allowed: Allowed,
}

const fn place(name: &'static str, layer: u8, allowed: Allowed) -> Place {
    Place {
        name,
        layer,
        allowed,
    }
}

const WIRE: &str = "livetime-wire";
const SHM: &str = "livetime-shm";
const STORE: &str = "livetime-store";

/// Every crate of the workspace, present or planned.
const PLACES: [Place; 16] = [
    place(WIRE, 0, Allowed::Only(&[])),
    place(SHM, 0, Allowed::Only(&[])),
    place("livetime-source", 1, Allowed::Only(&[WIRE])),
    place("livetime-readout", 1, Allowed::Only(&[WIRE])),
    place("livetime-trigger", 1, Allowed::Only(&[WIRE])),
    place("livetime-builder", 1, Allowed::Only(&[WIRE])),
    place("livetime-timing", 1, Allowed::Only(&[WIRE])),
    place(STORE, 1, Allowed::Only(&[WIRE])),
    place(
        "livetime-fabric",
        2,
        Allowed::Only(&[
            WIRE,
            // For hints to the processor alone: what is simulated depends on no machine.
            SHM,
            "livetime-source",
            "livetime-readout",
            "livetime-trigger",
            "livetime-builder",
            "livetime-timing",
            STORE,
        ]),
    ),
    place("livetime-node", 2, Allowed::Below),
    place(
        "livetime-timing-daemon",
        2,
        Allowed::Only(&[WIRE, SHM, "livetime-timing"]),
    ),
    place("livetime-control", 2, Allowed::Only(&[WIRE])),
    place("livetime-client", 2, Allowed::Only(&[WIRE, SHM, STORE])),
    place("livetime-study", 3, Allowed::Below),
    place("livetime", 4, Allowed::Below),
    place("livetime-capi", 4, Allowed::Below),
];

/// Crates outside the layers: automation and bindings, on which nothing may depend.
const OUTSIDE: [&str; 4] = [
    "xtask",
    "livetime-python",
    "livetime-fuzz",
    "algorithm-example",
];

/// A crate of the workspace with the names of everything it depends on.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    dependencies: Vec<String>,
}

/// Reads the packages of the workspace at `root` with all kinds of their dependencies.
pub(super) fn read(root: &Path) -> Result<Vec<Package>, Failure> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let packages = metadata.packages.into_iter().map(|package| Package {
        name: package.name.to_string(),
        dependencies: package
            .dependencies
            .into_iter()
            .map(|dependency| dependency.name)
            .collect(),
    });
    Ok(packages.collect())
}

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let is_ours = |name: &String| packages.iter().any(|package| package.name == *name);
    let mut findings = Vec::new();
    for package in packages {
        let manifest = match package.name.as_str() {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            name => format!("crates/{name}/Cargo.toml"),
        };
        if OUTSIDE.contains(&package.name.as_str()) {
            continue;
        }
        let Some(place) = PLACES.iter().find(|place| place.name == package.name) else {
            let message = format!("`{}` has no place in the table of layers", package.name);
            findings.push(Finding::error(RULE, &manifest, 0, message));
            continue;
        };
        let ours = package.dependencies.iter().filter(|name| is_ours(name));
        for dependency in ours.filter(|name| !may_depend(place, name)) {
            let message = format!("`{}` may not depend on `{dependency}`", package.name);
            findings.push(Finding::error(RULE, &manifest, 0, message));
        }
    }
    findings
}

fn may_depend(place: &Place, dependency: &str) -> bool {
    match place.allowed {
        Allowed::Only(names) => names.contains(&dependency),
        Allowed::Below => PLACES
            .iter()
            .any(|lower| lower.name == dependency && lower.layer < place.layer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::workspace_root;

    /// Findings for a workspace in which only `name` has dependencies.
    fn with(name: &str, dependencies: &[&str]) -> Vec<String> {
        let mut packages: Vec<Package> = PLACES
            .iter()
            .map(|place| place.name)
            .chain(OUTSIDE)
            .map(|name| Package {
                name: name.to_owned(),
                dependencies: Vec::new(),
            })
            .collect();
        packages.retain(|package| package.name != name);
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        packages.push(Package {
            name: name.to_owned(),
            dependencies,
        });
        check(&packages)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn upward_and_sideways_dependencies_are_found() {
        for (name, dependency) in [
            ("livetime-wire", "livetime-shm"),
            ("livetime-trigger", "livetime-builder"),
            ("livetime-readout", "livetime-shm"),
            ("livetime-builder", "livetime-fabric"),
            ("livetime-fabric", "livetime-node"),
            ("livetime-node", "livetime-fabric"),
            ("livetime-control", "livetime-store"),
            ("livetime-study", "livetime"),
            ("livetime", "xtask"),
        ] {
            let expected = format!("`{name}` may not depend on `{dependency}`");
            assert_eq!(with(name, &["serde", dependency]), [expected]);
        }
    }

    #[test]
    fn downward_dependencies_are_good() {
        let all: Vec<&str> = PLACES.iter().map(|place| place.name).collect();
        assert_eq!(
            with(
                "livetime-node",
                &["livetime-wire", "livetime-store", "libc"]
            )
            .len(),
            0
        );
        assert_eq!(
            with("livetime-study", &["livetime-node", "livetime-fabric"]).len(),
            0
        );
        assert_eq!(with("livetime", &all[..13]).len(), 0);
        assert_eq!(with("xtask", &all).len(), 0);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let expected = "`livetime-new` has no place in the table of layers";
        assert_eq!(with("livetime-new", &["livetime-wire"]), [expected]);
    }

    #[test]
    fn the_packages_of_this_workspace_are_read_with_their_dependencies() {
        let packages = read(&workspace_root()).unwrap();
        let xtask = packages
            .iter()
            .find(|package| package.name == "xtask")
            .unwrap();
        assert!(
            xtask
                .dependencies
                .iter()
                .any(|name| name == "cargo_metadata")
        );
    }
}
