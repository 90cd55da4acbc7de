//! What holds for every file system.

use std::io::ErrorKind;
use std::path::Path;

use crate::fs::{FileSystem, OpenMode, RealFs, SimFs};

/// Runs a check on the real disk and on the simulated one.
fn check(run: impl Fn(&dyn FileSystem, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    run(&RealFs, dir.path());
    let disk = SimFs::new();
    let root = Path::new("/root");
    disk.create_dir(root).unwrap();
    run(&disk, root);
}

#[test]
fn files_hold_what_was_written_and_zeros_between() {
    check(|fs, root| {
        let path = root.join("file");
        let file = fs.open(&path, OpenMode::CreateNew).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(5000, b"five").unwrap();
        file.write_at(4094, b"across").unwrap();
        assert_eq!(file.len().unwrap(), 5004);
        let mut bytes = [1; 12];
        file.read_at(4091, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0across\0\0\0");
        assert_eq!(file.read_at(5000, &mut [0; 5]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        file.set_len(5002).unwrap();
        file.set_len(5004).unwrap();
        let again = fs.open(&path, OpenMode::Read).unwrap();
        let mut bytes = [1; 4];
        again.read_at(5000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"fi\0\0");
        file.sync().unwrap();
        assert!(again.write_at(0, b"no").is_err());
    });
}

#[test]
fn allocation_takes_room_and_keeps_bytes_and_a_longer_length_takes_none() {
    check(|fs, root| {
        let file = fs.open(&root.join("file"), OpenMode::CreateNew).unwrap();
        file.write_at(10, b"kept").unwrap();
        file.sync().unwrap();
        file.set_len(1 << 20).unwrap();
        assert!(file.allocated_bytes().unwrap() <= 64 * 1024);
        file.allocate(0, 1 << 20).unwrap();
        assert!(file.allocated_bytes().unwrap() >= 1 << 20);
        file.allocate(1 << 20, 4096).unwrap();
        assert_eq!(file.len().unwrap(), (1 << 20) + 4096);
        let mut bytes = [1; 6];
        file.read_at(9, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0kept\0");
    });
}

#[test]
fn names_are_made_listed_renamed_and_removed() {
    check(|fs, root| {
        let (a, b, deep) = (root.join("a"), root.join("b"), root.join("x/y/z"));
        fs.create_dir(&deep).unwrap();
        fs.create_dir(&deep).unwrap();
        fs.open(&a, OpenMode::CreateNew).unwrap().write_at(0, b"a").unwrap();
        fs.open(&b, OpenMode::CreateNew).unwrap();
        assert_eq!(fs.list(root).unwrap(), ["a", "b", "x"]);
        assert_eq!(fs.open(&a, OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let found = fs.metadata(&a).unwrap().unwrap();
        assert_eq!((found.is_dir, found.len, found.mode), (false, 1, 0o600));
        let found = fs.metadata(&root.join("x/y")).unwrap().unwrap();
        assert_eq!((found.is_dir, found.mode), (true, 0o700));
        fs.rename(&a, &b).unwrap();
        assert_eq!(fs.metadata(&b).unwrap().unwrap().len, 1);
        assert_eq!(fs.metadata(&a).unwrap(), None);
        fs.remove(&b).unwrap();
        fs.sync_dir(root).unwrap();
        for error in [
            fs.remove(&b).unwrap_err(),
            fs.rename(&b, &a).unwrap_err(),
            fs.open(&b, OpenMode::Read).unwrap_err(),
            fs.open(&root.join("none/file"), OpenMode::CreateNew).unwrap_err(),
            fs.list(&root.join("none")).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        let volume = fs.volume(root).unwrap();
        assert!(volume.free > 0 && volume.free <= volume.total);
    });
}

#[test]
fn a_lock_excludes_others_and_names_its_holder() {
    check(|fs, root| {
        let path = root.join("lock");
        let held = fs.lock(&path, "first").unwrap();
        let refused = fs.lock(&path, "second").unwrap_err();
        assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::WouldBlock, "first"));
        drop(held);
        let held = fs.lock(&path, "2nd").unwrap();
        assert_eq!(fs.lock(&path, "third").unwrap_err().to_string(), "2nd");
        drop(held);
    });
}
