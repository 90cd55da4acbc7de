//! A recording repeats what was done, and its cuts are those of the disk that was recorded.

use std::collections::BTreeSet;
use std::path::Path;

use crate::fs::sim::{CrashStyle, Deed, Fault, FaultKind, Op, Prng, SimFs};
use crate::fs::{FileSystem, OpenMode};

const ROOT: &str = "/root";
const STYLES: [CrashStyle; 5] =
    [CrashStyle::KeepNone, CrashStyle::KeepAll, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::HeaderBytes];

/// Everything that a cut would leave, in every style.
fn images(crash: impl Fn(CrashStyle, u64) -> SimFs) -> Vec<Vec<(String, Option<Vec<u8>>)>> {
    let images = STYLES.iter().flat_map(|style| (0..3).map(|seed| crash(*style, seed)).collect::<Vec<_>>());
    let contents = |disk: SimFs| {
        let files = disk.files();
        files.into_iter().map(|path| (path.display().to_string(), disk.contents(&path))).collect()
    };
    images.map(contents).collect()
}

/// One random change; some of them fail.
fn change(disk: &SimFs, random: &mut Prng) {
    let path = |number| format!("{ROOT}/{number}");
    let (one, other) = (path(random.below(4)), path(random.below(4)));
    let file = disk.open(Path::new(&one), OpenMode::ReadWrite);
    let place = random.below(9000);
    let _ = match (random.below(9), file) {
        (0, _) => disk.open(Path::new(&one), OpenMode::CreateNew).map(drop),
        (1, _) => disk.rename(Path::new(&one), Path::new(&other)),
        (2, _) => disk.remove(Path::new(&one)),
        (3, _) => disk.sync_dir(Path::new(ROOT)),
        (4, Ok(file)) => file.sync(),
        (5, Ok(file)) => file.set_len(place),
        (6, Ok(file)) => file.allocate(place, 5000),
        (_, Ok(file)) => file.write_at(place, &vec![random.below(256) as u8; 1 + place as usize % 3000]),
        (_, Err(error)) => Err(error),
    };
}

#[test]
fn every_cut_of_a_recording_is_one_of_the_disk_that_was_recorded() {
    for seed in 0..20 {
        let (disk, mut random) = (SimFs::new(), Prng::new(seed));
        disk.create_dir(Path::new(ROOT)).unwrap();
        (0..20).for_each(|_| change(&disk, &mut random));
        disk.record();
        let mut then = vec![(0, images(|style, seed| disk.crash(style, seed)))];
        for _ in 0..60 {
            change(&disk, &mut random);
            then.push((disk.tape_len(), images(|style, seed| disk.crash(style, seed))));
        }
        let tape = disk.take_tape().unwrap();
        let mut player = tape.play();
        for (position, expected) in then {
            player.advance_to(position);
            assert_eq!(player.position(), position);
            assert_eq!(images(|style, seed| player.crash(style, seed)), expected, "seed {seed}, step {position}");
        }
    }
}

#[test]
fn marks_threads_and_paths_are_recorded_errors_and_reads_are_not() {
    let disk = SimFs::new();
    disk.create_dir(Path::new(ROOT)).unwrap();
    disk.record();
    let path = Path::new("/root/file");
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    disk.mark(7);
    let writer = std::thread::Builder::new().name("writer".into());
    writer
        .spawn(move || file.write_at(3, b"abc").map(|()| file.read_at(3, &mut [0; 3])))
        .unwrap()
        .join()
        .unwrap()
        .unwrap()
        .unwrap();
    disk.inject(Fault::new(FaultKind::Io, 1).on(Op::Remove).lasting());
    assert!(disk.remove(path).is_err() && disk.remove(path).is_err() && disk.has_failed());
    let tape = disk.take_tape().unwrap();
    let steps: Vec<_> = tape.steps().iter().map(|step| step.deed.clone()).collect();
    assert_eq!(steps, [Deed::Create, Deed::Mark(7), Deed::Write(3, b"abc"[..].into())]);
    assert_eq!((&*tape.steps()[2].thread, tape.steps()[2].path.as_path()), ("writer", path));
    assert!(disk.take_tape().is_none());
}

#[test]
fn steps_on_different_files_can_be_played_in_another_order() {
    let disk = SimFs::new();
    disk.create_dir(Path::new(ROOT)).unwrap();
    let files = ["/root/a", "/root/b"].map(|path| disk.open(Path::new(path), OpenMode::CreateNew).unwrap());
    disk.sync_dir(Path::new(ROOT)).unwrap();
    disk.record();
    files.iter().for_each(|file| file.write_at(0, b"new").and_then(|()| file.sync()).unwrap());
    let mut tape = disk.take_tape().unwrap();
    tape.reorder(&[2, 3, 0, 1]);
    let mut player = tape.play();
    player.advance_to(2);
    let cut = player.crash(CrashStyle::KeepNone, 0);
    assert_eq!((cut.contents("/root/a").unwrap().len(), cut.contents("/root/b").unwrap().len()), (0, 3));
}

#[test]
fn single_bytes_are_torn_in_the_first_sector_and_nowhere_else() {
    let disk = SimFs::new();
    disk.create_dir(Path::new(ROOT)).unwrap();
    let path = Path::new("/root/file");
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    file.write_at(0, &[1; 2048]).unwrap();
    file.sync().and_then(|()| disk.sync_dir(Path::new(ROOT))).unwrap();
    file.write_at(0, &[2; 2048]).unwrap();
    let torn = |sector: &[u8]| sector.iter().collect::<BTreeSet<_>>().len() == 2;
    let images: Vec<Vec<u8>> =
        (0..100).map(|seed| disk.crash(CrashStyle::HeaderBytes, seed).contents(path).unwrap()).collect();
    assert!(images.iter().filter(|image| torn(&image[..512])).count() > 40);
    assert!(!images.iter().flat_map(|image| image[512..].chunks(512)).any(torn));
}
