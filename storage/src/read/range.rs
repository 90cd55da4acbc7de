//! A range request evaluated at one revision: which keys, in which order, how many.

use bytes::Bytes;

use crate::error::Error;
use crate::read::counts::Counts;
use crate::read::listing::{Listing, loaded};
use crate::read::{Found, Sources};
use crate::reply::RangeReply;
use crate::request::{Content, Filters, KeyRange, RangeEnd, RangeRequest, SortOrder, SortTarget};
use crate::types::{Revision, RevisionPair};

/// Keys looked at in one step of a scan: enough to amortise the seek, few enough to bound memory and lock time.
const STEP: usize = 1000;

/// The most keys that room is made for before they are found.
const ROOM_MAX: usize = 1 << 16;

/// A range evaluated against what one reader sees.
pub(crate) struct RangeReader<'a> {
    /// Where from.
    pub(crate) sources: &'a Sources,
    /// What is above does not exist.
    pub(crate) at: RevisionPair,
    /// The store's revision, for the reply.
    pub(crate) current: Revision,
    /// Remembered counts; none where the state between two revisions is read.
    pub(crate) counts: Option<&'a Counts>,
    /// The keys in the range of the request, if that is known.
    pub(crate) known: Option<i64>,
}

impl RangeReader<'_> {
    /// Evaluates the request.
    pub(crate) fn range(&self, request: &RangeRequest) -> Result<RangeReply, Error> {
        self.list(request)?.into_reply()
    }

    /// Evaluates the request but for the values, unless it sorts by them.
    pub(crate) fn list(&self, request: &RangeRequest) -> Result<Listing, Error> {
        let mut listing = Listing {
            revision: self.current,
            more: false,
            count: 0,
            found: Vec::new().into_iter(),
            values: request.content == Content::Full,
            // The index holds no lease for a reader of keys alone: etcd 3.7 answers 0 there, unless it needs the values to sort by them.
            leases: request.content == Content::Full || by_value(request),
            at: self.at.main,
            base: Some(self.sources.base.clone()),
        };
        if request.content == Content::CountOnly {
            listing.count = self.count(&request.range)?;
            return Ok(listing);
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let wanted = if limit > 0 && limit_comes_first(request) { limit.saturating_add(1) } else { usize::MAX };
        let (mut found, count) = self.collect(&request.range, wanted)?;
        found.retain(|found| passes(&request.filters, found));
        if by_value(request) {
            let kvs = self.sources.key_values(&found)?;
            found = found.iter().zip(kvs).map(|(found, kv)| loaded(found, kv)).collect();
        }
        sort(&mut found, request);
        listing.count = count;
        listing.more = cut(&mut found, limit);
        listing.found = found.into_iter();
        Ok(listing)
    }

    /// Every key in the range, without values: for conditions and deletions. `visit` answers false to stop.
    pub(crate) fn visit(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(Found) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        self.visit_in_steps(range, small!(STEP, 2), visit)
    }

    fn visit_in_steps(
        &self,
        range: &KeyRange,
        step: usize,
        visit: &mut dyn FnMut(Found) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Some((mut start, end)) = bounds(range) else {
            if let Some(found) = self.single(range)? {
                visit(found)?;
            }
            return Ok(());
        };
        loop {
            let chunk = self.sources.scan(&start, end.as_deref(), self.at, step)?;
            for found in chunk.found.into_iter().filter(|found| !found.is_tombstone()) {
                if !visit(found)? {
                    return Ok(());
                }
            }
            match chunk.next {
                Some(next) => start = next,
                None => return Ok(()),
            }
        }
    }

    /// At most `wanted` keys, and how many there are in all.
    fn collect(&self, range: &KeyRange, wanted: usize) -> Result<(Vec<Found>, i64), Error> {
        // Room at once where it is known: a long list that grows is copied again and again.
        let known = self.known.and_then(|known| usize::try_from(known).ok()).unwrap_or(0);
        let mut found = Vec::with_capacity(wanted.min(known).min(ROOM_MAX));
        let step = wanted.saturating_add(1).min(small!(STEP, 2));
        self.visit_in_steps(range, step, &mut |next| {
            found.push(next);
            Ok(found.len() < wanted)
        })?;
        let taken = i64::try_from(found.len()).unwrap_or(i64::MAX);
        if found.len() < wanted {
            return Ok((found, taken));
        }
        let total = self.total(range, &found, taken)?;
        Ok((found, total))
    }

    /// The keys in a range of which the first ones were found; the rest after the last but one is remembered for the next page.
    fn total(&self, range: &KeyRange, found: &[Found], taken: i64) -> Result<i64, Error> {
        let Some((start, end)) = bounds(range) else { return Ok(taken) };
        let Some(last) = found.last() else { return Ok(taken) };
        let total = match self.recall(&start, end.as_ref()) {
            Some(total) => total,
            None => taken + self.count_from(following(last.key()), end.as_ref())?,
        };
        if let (Some(counts), Some(page_end)) = (self.counts, found.len().checked_sub(2).and_then(|i| found.get(i))) {
            // The page ends one key before the last found; the next one starts right behind it.
            counts.remember(following(page_end.key()), end.as_ref(), self.at.main, total - (taken - 1));
        }
        Ok(total)
    }

    fn count(&self, range: &KeyRange) -> Result<i64, Error> {
        match bounds(range) {
            None => Ok(i64::from(self.single(range)?.is_some())),
            Some((start, end)) => match self.recall(&start, end.as_ref()) {
                Some(count) => Ok(count),
                None => {
                    let count = self.count_from(start.clone(), end.as_ref())?;
                    if let Some(counts) = self.counts {
                        counts.remember(Bytes::copy_from_slice(&start), end.as_ref(), self.at.main, count);
                    }
                    Ok(count)
                }
            },
        }
    }

    fn recall(&self, start: &Bytes, end: Option<&Bytes>) -> Option<i64> {
        self.known.or_else(|| self.counts.and_then(|counts| counts.recall(start, end, self.at.main)))
    }

    fn count_from(&self, mut start: Bytes, end: Option<&Bytes>) -> Result<i64, Error> {
        let mut count = 0;
        loop {
            let chunk = self.sources.scan(&start, end.map(Bytes::as_ref), self.at, small!(STEP, 2))?;
            let living = chunk.found.iter().filter(|found| !found.is_tombstone()).count();
            count += i64::try_from(living).unwrap_or(i64::MAX);
            match chunk.next {
                Some(next) => start = next,
                None => return Ok(count),
            }
        }
    }

    fn single(&self, range: &KeyRange) -> Result<Option<Found>, Error> {
        if range.end != RangeEnd::SingleKey {
            return Ok(None);
        }
        self.sources.get_live(range.start.bytes(), self.at)
    }
}

/// The range as bounds; `None` if it is a single key or holds none.
pub(crate) fn bounds(range: &KeyRange) -> Option<(Bytes, Option<Bytes>)> {
    match &range.end {
        RangeEnd::SingleKey => None,
        RangeEnd::Before(_) if range.is_empty() => None,
        RangeEnd::Before(end) => Some((range.start.bytes().clone(), Some(end.clone()))),
        RangeEnd::Open => Some((range.start.bytes().clone(), None)),
    }
}

/// The first key after `key`.
fn following(key: &Bytes) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// etcd applies the limit before it sorts if no order is asked for, whatever the target; and natural order needs no sorting.
fn limit_comes_first(request: &RangeRequest) -> bool {
    request.filters == Filters::default() && (request.order == SortOrder::None || natural(request))
}

fn natural(request: &RangeRequest) -> bool {
    request.target == SortTarget::Key && request.order != SortOrder::Descend
}

fn by_value(request: &RangeRequest) -> bool {
    request.target == SortTarget::Value
}

fn passes(filters: &Filters, found: &Found) -> bool {
    let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    let numbers = found.numbers();
    within(found.place().main.0, filters.min_mod_revision, filters.max_mod_revision)
        && within(numbers.create.0, filters.min_create_revision, filters.max_create_revision)
}

fn sort(found: &mut [Found], request: &RangeRequest) {
    if natural(request) {
        return;
    }
    ordered(found, request.order, |found| match request.target {
        SortTarget::Key => found.sort_by(|a, b| a.key().cmp(b.key())),
        SortTarget::Value => found.sort_by(|a, b| a.value_at_hand().cmp(&b.value_at_hand())),
        SortTarget::Version => found.sort_by_cached_key(|found| found.numbers().version),
        SortTarget::Create => found.sort_by_cached_key(|found| found.numbers().create.0),
        SortTarget::Mod => found.sort_by_key(|found| found.place().main),
    });
}

/// Sorts by what `sort` sorts ascending and stable. Turned round before and after it, what compares equal stays in the
/// order of the keys whatever the order, as in etcd.
fn ordered<T>(items: &mut [T], order: SortOrder, sort: impl FnOnce(&mut [T])) {
    let descending = order == SortOrder::Descend;
    if descending {
        items.reverse();
    }
    sort(items);
    if descending {
        items.reverse();
    }
}

/// Cuts to the limit; true if something was cut off.
fn cut<T>(items: &mut Vec<T>, limit: usize) -> bool {
    let more = limit > 0 && items.len() > limit;
    if more {
        items.truncate(limit);
    }
    more
}
