//! What a process at its limit on open files takes others for. One test, so that the limit of the
//! process that runs it holds nothing else up.
#![cfg(not(loom))]

use std::os::fd::AsFd;

use livetime_shm::{
    PagePool, PeerError, PoolConfig, ReclaimError, control_pair, recv_fds, send_fds,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn at_the_limit_on_open_files_the_living_live_and_the_limit_is_named() {
    let pool = PagePool::create(&PoolConfig {
        pages: 1,
        page_bytes: 64,
        huge_pages: livetime_shm::HugePages::Never,
    })
    .unwrap();
    let other = PagePool::open(pool.fd().try_clone_to_owned().unwrap()).unwrap();
    let (ours, theirs) = control_pair().unwrap();
    send_fds(&ours, b"ends", &[ours.as_fd()]).unwrap();

    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        maximum: usual.maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let refused = pool.reclaim(other.owner());
    let received = recv_fds(&theirs, &mut [0; 16]);
    setrlimit(Resource::Nofile, usual).unwrap();

    assert!(
        matches!(refused, Err(ReclaimError::Alive { .. })),
        "{refused:?}"
    );
    match received {
        Err(error @ PeerError::DescriptorsLost) => {
            assert!(error.to_string().contains("`ulimit -n`"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // Whoever is really gone is still found to be.
    assert!(!livetime_shm::ProcessId::from_word(0x3f_ffff << 41 | 1).is_alive());
}
