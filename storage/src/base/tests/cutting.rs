//! Values in several rows: they come back whole or not at all, and go with all their rows.

use redb::ReadableTableMetadata;

use super::build::everything;
use super::cut::{CUT_MIN_BYTES, PAGE_BYTES, Page, Row, push_rows};
use super::fault::At;
use super::pieces::Chain;
use super::*;
use crate::fs::SimFs;

pub(super) fn value(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251 + seed) as u8).collect()
}

fn history(base: &Base) -> Vec<Row> {
    let rows = everything(&base.snapshot().unwrap()).1.into_iter();
    rows.filter(|(table, ..)| *table == TableId::History).map(|(_, key, row)| (key, row)).collect()
}

#[test]
fn the_fill_of_the_last_page_is_what_redb_has_there() {
    let mut rng = Rng(5);
    for _ in 0..20 {
        let base = new_base(&MemoryDisk::new());
        for step in 0..30_u64 {
            let sizes: Vec<usize> = (0..=rng.below(9)).map(|_| rng.below(6000) as usize).collect();
            let first = step as i64 * 100 + 2;
            let changes = sizes.iter().zip(first..).map(|(len, main)| put("k", main, value(*len, 0)));
            base.flush(&part(step + 1, -1, changes.collect()), Garbage::Drop).unwrap();
            // A page that has room for so much, and not for a byte more, is that full.
            let fits = |extra: usize, page: Page| {
                let fork = |txn: &redb::WriteTransaction| {
                    let mut table = txn.open_table(TableId::History.definition()).unwrap();
                    assert_eq!(Page::last_of(&table).unwrap(), page);
                    let before = table.stats().unwrap().leaf_pages();
                    let mut end = table.upper_bound_mut(std::ops::Bound::<&[u8]>::Unbounded).unwrap();
                    end.insert_before(&[0xFF; 16][..], vec![1; page.room(16) + extra].as_slice()).unwrap();
                    end.close().unwrap();
                    table.stats().unwrap().leaf_pages() - before
                };
                let txn = base.database.begin_write().unwrap();
                let more = fork(&txn);
                txn.abort().unwrap();
                more
            };
            let txn = base.database.begin_write().unwrap();
            let page = Page::last_of(&txn.open_table(TableId::History.definition()).unwrap()).unwrap();
            txn.abort().unwrap();
            if page.room(16) > 0 {
                assert_eq!(fits(0, page), 0, "{page:?}");
            }
            assert_eq!(fits(1, page), 1, "{page:?}");
        }
    }
}

#[test]
fn values_of_every_length_at_every_place_of_a_page_come_back() {
    let (mut whole, mut cut) = (0, 0);
    for before in (0..PAGE_BYTES).step_by(61).chain(PAGE_BYTES - 340..PAGE_BYTES) {
        for len in [CUT_MIN_BYTES - 1, CUT_MIN_BYTES, 1000, PAGE_BYTES - 60, PAGE_BYTES, 3 * PAGE_BYTES + before] {
            let mut page = Page::with(before.max(4));
            let mut rows = Vec::new();
            let change = put("some key", 7, value(len, before));
            let bytes = push_rows(&change, &mut page, &mut rows);
            assert_eq!(bytes, rows.iter().map(|(key, row)| key.len() + row.len()).sum());
            assert!(rows.is_sorted() && rows.iter().all(fits_or_fills));
            *if rows.len() == 1 { &mut whole } else { &mut cut } += 1;
            assert!(len >= CUT_MIN_BYTES || rows.len() == 1);
            assert_eq!(joined(&rows).unwrap(), value(len, before));
        }
    }
    println!("{whole} whole, {cut} cut");
    assert!(whole > 200 && cut > 500);
}

/// True for a row that fits into a page of 4 KiB, or fills a larger one to the last byte.
fn fits_or_fills((key, row): &Row) -> bool {
    let bytes = 4 + 8 + key.len() + row.len();
    bytes <= PAGE_BYTES || (bytes.is_power_of_two() && bytes <= PAGE_BYTES << 4)
}

/// The value that these rows have, by the rules of the layout alone.
fn joined(rows: &[Row]) -> Result<Vec<u8>, Error> {
    let mut chain = Chain::default();
    let mut value = Vec::new();
    for (key, row) in rows {
        assert!(chain.pass(key, row)?);
        let piece = match layout::is_piece(key) {
            true => layout::read_piece(key, row)?,
            false => layout::read_history_row(key, row)?.value.piece(),
        };
        value.extend_from_slice(piece);
    }
    chain.end().map(|()| value)
}

#[test]
fn a_row_that_just_fits_is_not_cut_and_one_byte_more_is() {
    let room = |page: &Page| page.room(16);
    for left in [600, 1500, 4000] {
        let page = Page::with(PAGE_BYTES - 8 - 16 - left);
        assert_eq!(room(&page), left);
        let fits = left - layout::head_len(b"k", None);
        let rows = |len: usize| {
            let (mut page, mut rows) = (page, Vec::new());
            push_rows(&put("k", 2, value(len, 1)), &mut page, &mut rows);
            (rows.iter().map(|(key, row)| key.len() + row.len()).collect::<Vec<_>>(), page)
        };
        assert_eq!(rows(fits), (vec![left + 16], Page::with(PAGE_BYTES)));
        let (more, page) = rows(fits + 1);
        assert_eq!((more.len(), more[0]), (2, left + 16));
        // What does not fit beside the length is the rest of the value: as many bytes as the length takes, and one more.
        assert_eq!(page, Page::with(4 + 8 + 20 + 4 + 3));
    }
    // Too little is left for a piece: the next page has it whole.
    let (mut page, mut rows) = (Page::with(PAGE_BYTES - 200), Vec::new());
    push_rows(&put("k", 2, value(3000, 1)), &mut page, &mut rows);
    assert_eq!(rows.len(), 1);
    // A key longer than a page has a page of its own, and the value the next ones.
    let long = "k".repeat(9000);
    let (mut page, mut rows) = (Page::with(100), Vec::new());
    push_rows(&put(&long, 2, value(9000, 1)), &mut page, &mut rows);
    assert_eq!(joined(&rows).unwrap(), value(9000, 1));
    assert!(rows[1..].iter().all(fits_or_fills));
}

/// A base with values of several sizes, some of them of older formats: never cut, however large.
fn mixed(fs: &Arc<dyn FileSystem>, old: impl Fn(i64) -> bool) -> Base {
    let base = Base::create(fs, &path(), CACHE_BYTES).unwrap();
    let some = |n: usize| value([40, 900, 5000, 28_000][n % 4], n);
    let changes: Vec<Change> =
        (2..60).map(|n| put(&format!("key {:02}", n % 40), n, some(n.unsigned_abs() as usize))).collect();
    base.flush(&part(1, -1, changes.clone()), Garbage::Drop).unwrap();
    base.commit(|txn, before| {
        let mut meta = *before;
        let mut table = rows::Rows::open(txn, TableId::History, &meta.sums)?;
        for change in changes.iter().filter(|change| old(change.at.main.0)) {
            table.remove_version(change.at)?;
            let place = layout::history_key(change.at);
            table.put(&place, &layout::history_row(&place, change))?;
        }
        table.close(&mut meta.sums);
        meta.write(txn)?;
        Ok((meta, ()))
    })
    .unwrap();
    base
}

fn changes_of(base: &Base) -> Vec<Arc<Change>> {
    base.snapshot().unwrap().changes(Revision(0), Revision(i64::MAX), usize::MAX).unwrap()
}

fn scrub(base: &Base) -> Result<u64, Error> {
    let mut damage = 0;
    loop {
        let did = base.scrub_step(3000)?;
        damage += did.damage.len() as u64;
        if did.done {
            return Ok(damage);
        }
    }
}

#[test]
fn rows_of_older_formats_are_read_swept_scrubbed_and_rewritten_among_new_ones() {
    let expected = changes_of(&mixed(&on(&MemoryDisk::new()), |_| false));
    for old in [|_| true, |n| n % 3 == 0] {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFs::new());
        fs.create_dir(&PathBuf::from("/data")).unwrap();
        let base = Arc::new(mixed(&fs, old));
        let cut = history(&base).iter().filter(|(key, _)| layout::is_piece(key)).count();
        assert_eq!(changes_of(&base), expected);
        let snapshot = base.snapshot().unwrap();
        snapshot.verify().unwrap();
        assert_eq!(snapshot.changes_stored(), 58);
        for max_bytes in [1, 30_000, usize::MAX] {
            let mut below = Vec::new();
            let mut upto = RevisionPair::MAX;
            loop {
                let mut chunk = snapshot.changes_below(upto, max_bytes).unwrap();
                let Some(first) = chunk.first() else { break };
                upto = first.at;
                chunk.append(&mut below);
                below = chunk;
            }
            assert_eq!(below, expected);
        }
        let places: Vec<_> = expected.iter().rev().map(|change| change.at).collect();
        let values = expected.iter().rev().map(|change| change.key_value().unwrap().value);
        assert!(snapshot.values(&places).unwrap().into_iter().eq(values));
        drop(snapshot);
        assert_eq!(scrub(&base).unwrap(), 0);
        let mut rewrite = Rewrite::begin(&base).unwrap();
        while rewrite.step().unwrap() != Step::CaughtUp {}
        let copy = rewrite.finish().unwrap();
        copy.snapshot().unwrap().verify().unwrap();
        assert_eq!(everything(&copy.snapshot().unwrap()), everything(&base.snapshot().unwrap()));
        // Versions with one row and with several are swept, and leave nothing behind.
        let part = PartData {
            applied: Applied { position: Position(2), compacted: Revision(59), ..base.meta().applied },
            ..PartData::default()
        };
        base.flush(&part, Garbage::Drop).unwrap();
        while !base.sweep(Revision(59), 7).unwrap().done {}
        base.snapshot().unwrap().verify().unwrap();
        assert_eq!(scrub(&base).unwrap(), 0);
        let left = changes_of(&base);
        assert_eq!(left, expected[18..]);
        assert_eq!(base.snapshot().unwrap().changes_stored(), 40);
        println!("{cut} pieces");
    }
}

type Table<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;
type Alter<'a> = Box<dyn FnOnce(&mut Table<'_>) + 'a>;

/// Does something to a row of `history`, behind the back of what counts them.
fn with(disk: &MemoryDisk, alter: impl FnOnce(&mut Table<'_>)) -> Base {
    let base = reopen(disk);
    commit::durably(&base.database, |txn| {
        alter(&mut txn.open_table(TableId::History.definition()).at("history")?);
        Ok(())
    })
    .unwrap();
    base
}

#[test]
fn no_piece_can_vanish_change_move_or_be_left_over_unnoticed() {
    let sound = MemoryDisk::new();
    let base = mixed(&on(&sound), |n| n % 5 == 0);
    let (expected, rows) = (changes_of(&base), history(&base));
    drop(base);
    let pieces: Vec<&Row> = rows.iter().filter(|(key, _)| layout::is_piece(key)).collect();
    assert!(pieces.len() > 50);
    let (mut noticed, mut harmless) = (0, 0);
    for (number, (key, row)) in pieces.iter().enumerate() {
        let (at, n) = layout::read_place(key).unwrap();
        let (other, other_row) = pieces[(number + 1) % pieces.len()];
        let next = layout::piece_key(at, n + 1);
        let shorter = layout::piece_row(key, &row[4..row.len() - 1]);
        let left_over = layout::piece_row(&layout::piece_key(at, 99), b"x");
        let flipped = {
            let mut row = row.clone();
            *row.last_mut().unwrap() ^= 1;
            row
        };
        let faults: [(&str, Alter<'_>); 7] = [
            ("lost", Box::new(|table| drop(table.remove(key.as_slice()).unwrap()))),
            ("altered", Box::new(|table| drop(table.insert(key.as_slice(), flipped.as_slice()).unwrap()))),
            ("shorter", Box::new(|table| drop(table.insert(key.as_slice(), shorter.as_slice()).unwrap()))),
            (
                "swapped",
                Box::new(|table| {
                    table.insert(key.as_slice(), other_row.as_slice()).unwrap();
                    table.insert(other.as_slice(), row.as_slice()).unwrap();
                }),
            ),
            (
                "moved",
                Box::new(|table| {
                    table.remove(key.as_slice()).unwrap();
                    table.insert(next.as_slice(), layout::piece_row(&next, &row[4..]).as_slice()).unwrap();
                }),
            ),
            (
                "without its first row",
                Box::new(|table| drop(table.remove(layout::history_key(at).as_slice()).unwrap())),
            ),
            (
                "left over",
                Box::new(|table| drop(table.insert(&layout::piece_key(at, 99)[..], left_over.as_slice()).unwrap())),
            ),
        ];
        for (fault, alter) in faults {
            let disk = sound.copy();
            let base = with(&disk, alter);
            let snapshot = base.snapshot().unwrap();
            assert!(snapshot.verify().is_err(), "{fault}: verify");
            let scrubbed = scrub(&base);
            assert!(scrubbed.as_ref().map_or(true, |damage| *damage > 0), "{fault}: scrub says {scrubbed:?}");
            let read = snapshot.value(at);
            let all = snapshot.changes(Revision(0), Revision(i64::MAX), usize::MAX);
            let back = snapshot.changes_below(RevisionPair::MAX, usize::MAX);
            if fault == "left over" {
                let whole = expected.iter().find(|change| change.at == at).unwrap().key_value().unwrap().value;
                assert_eq!(read.unwrap(), whole);
            } else {
                assert!(matches!(read, Err(Error::Corrupt { .. })), "{fault}: {read:?}");
                assert!(snapshot.on_pages(&[at]).is_err());
            }
            assert!(all.is_err() && back.is_err(), "{fault}");
            noticed += 1;
            harmless += u64::from(scrubbed.is_ok());
            drop(snapshot);
            // Whatever is left of the others is right.
            let snapshot = base.snapshot().unwrap();
            for change in
                expected.iter().filter(|change| change.at != at && change.at != layout::read_place(other).unwrap().0)
            {
                assert_eq!(snapshot.value(change.at).unwrap(), change.key_value().unwrap().value, "{fault}");
            }
            drop((snapshot, base));
            salvage_of(&disk, fault, at, &expected);
        }
    }
    println!("{} pieces, {noticed} faults noticed, {harmless} of them harmless damage", pieces.len());
}

/// What is salvaged is right, and the version concerned is not in it unless it is whole.
fn salvage_of(disk: &MemoryDisk, fault: &str, at: RevisionPair, expected: &[Arc<Change>]) {
    let target = Target {
        fs: &on(disk),
        dir: &PathBuf::from("/data"),
        file: &PathBuf::from("/data/salvaged"),
        cache_bytes: CACHE_BYTES,
        sort_bytes: 1 << 20,
        now_ms: 0,
    };
    let salvaged = salvage(&Damaged::new(&on(disk), path(), CACHE_BYTES), &target).unwrap();
    let snapshot = salvaged.base.snapshot().unwrap();
    snapshot.verify().unwrap();
    let found = snapshot.changes(Revision(0), Revision(i64::MAX), usize::MAX).unwrap();
    assert!(found.iter().all(|change| expected.contains(change)), "{fault}");
    let there = found.iter().any(|change| change.at == at);
    if fault == "left over" {
        assert!(there && salvaged.lost.is_empty() && found == *expected, "{:?}", salvaged.lost);
    } else {
        assert!(!there && salvaged.lost.iter().any(|lost| lost.revisions == Some((at.main, at.main))), "{fault}");
    }
    salvaged.base.halt();
}
