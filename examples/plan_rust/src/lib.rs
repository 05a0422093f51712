// SPDX-License-Identifier: Apache-2.0
//! memoir's planner: an offset in one arena for every buffer whose lifetime is known.
//!
//! ```
//! use memoir_plan::{plan, Buffer, Options};
//! let buffers = [Buffer::new(0, 4, 2), Buffer::new(2, 7, 4), Buffer::new(4, 9, 2)];
//! let plan = plan(&buffers, &Options::default()).unwrap();
//! assert_eq!(plan.arena_size, 6);
//! assert!(plan.optimal);
//! ```

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

mod raw {
    use super::{c_char, c_int, c_void};

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Options {
        pub struct_size: usize,
        pub deadline_s: f64,
        pub work_limit: u64,
        pub seed: u64,
        pub capacity: u64,
        pub threads: u32,
        pub tolerance_bytes: u64,
        pub tolerance_share: f64,
        pub progress: Option<unsafe extern "C" fn(*mut c_void, u64, f64) -> c_int>,
        pub context: *mut c_void,
        pub reserved: [u64; 2],
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct Outcome {
        pub arena_size: u64,
        pub load: u64,
        pub lower_bound: u64,
        pub optimal: i32,
        pub seconds: f64,
    }

    #[repr(C)]
    pub struct Skeleton {
        _private: [u8; 0],
    }

    extern "C" {
        pub fn memoir_plan_defaults() -> Options;
        pub fn memoir_plan_why() -> *const c_char;
        pub fn memoir_plan(
            count: usize,
            lower: *const u64,
            upper: *const u64,
            size: *const u64,
            alignment: *const u64,
            options: *const Options,
            offsets: *mut u64,
            result: *mut Outcome,
        ) -> c_int;
        pub fn memoir_skeleton_create(
            count: usize,
            lower: *const u64,
            upper: *const u64,
            size: *const u64,
            alignment: *const u64,
            offsets: *const u64,
        ) -> *mut Skeleton;
        pub fn memoir_skeleton_destroy(skeleton: *mut Skeleton);
        pub fn memoir_skeleton_count(skeleton: *const Skeleton) -> usize;
        pub fn memoir_skeleton_place(
            skeleton: *const Skeleton,
            size: *const u64,
            offsets: *mut u64,
            arena_size: *mut u64,
        ) -> c_int;
    }
}

/// Lives in the ticks `lower..upper`, has `size` bytes and an offset that is a multiple of `alignment`.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub alignment: u64,
}

impl Buffer {
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Buffer { lower, upper, size, alignment: 1 }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seconds of wall clock.
    pub deadline_s: f64,
    /// Bytes: the first plan that fits is good enough.
    pub capacity: Option<u64>,
    /// 1: the caller's alone; 0: one per core.
    pub threads: u32,
    pub seed: u64,
    /// Placements tried, instead of the deadline: the same plan on any machine; 0: none.
    pub work_limit: u64,
    /// Without a capacity: a plan so many bytes above the proven bound is good enough.
    pub tolerance_bytes: u64,
    /// The same as a share of the bound, 0.01 is 1 %. The larger of the two counts.
    pub tolerance_share: f64,
}

impl Default for Options {
    fn default() -> Self {
        let raw = unsafe { raw::memoir_plan_defaults() };
        Options {
            deadline_s: raw.deadline_s,
            capacity: None,
            threads: raw.threads,
            seed: raw.seed,
            work_limit: raw.work_limit,
            tolerance_bytes: raw.tolerance_bytes,
            tolerance_share: raw.tolerance_share,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    /// One per buffer, in bytes.
    pub offsets: Vec<u64>,
    pub arena_size: u64,
    /// No plan is smaller.
    pub lower_bound: u64,
    pub optimal: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Proven: no plan fits the capacity.
    Infeasible,
    /// None was found that fits, but there may be one.
    NotFound,
    /// What is wrong.
    Refused(String),
}

fn why() -> String {
    unsafe { CStr::from_ptr(raw::memoir_plan_why()) }.to_string_lossy().into_owned()
}

fn check(code: c_int) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        1 => Err(Error::Infeasible),
        3 => Err(Error::NotFound),
        _ => Err(Error::Refused(why())),
    }
}

struct Columns {
    lower: Vec<u64>,
    upper: Vec<u64>,
    size: Vec<u64>,
    alignment: Vec<u64>,
}

impl Columns {
    fn of(buffers: &[Buffer]) -> Self {
        Columns {
            lower: buffers.iter().map(|b| b.lower).collect(),
            upper: buffers.iter().map(|b| b.upper).collect(),
            size: buffers.iter().map(|b| b.size).collect(),
            alignment: buffers.iter().map(|b| b.alignment).collect(),
        }
    }
}

/// What there is so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Of the best plan, in bytes; `None` before there is one.
    pub arena_size: Option<u64>,
    /// Wall clock.
    pub seconds: f64,
}

type Panic = Box<dyn std::any::Any + Send>;

struct Told<'a> {
    tell: &'a mut dyn FnMut(Progress) -> bool,
    panic: Option<Panic>,
}

/// No panic goes through the library: it is kept until that has returned.
unsafe extern "C" fn told(context: *mut c_void, arena_size: u64, seconds: f64) -> c_int {
    let told = &mut *context.cast::<Told>();
    let arena_size = (arena_size != u64::MAX).then_some(arena_size);
    let tell = &mut told.tell;
    match catch_unwind(AssertUnwindSafe(|| tell(Progress { arena_size, seconds }))) {
        Ok(go_on) => c_int::from(!go_on),
        Err(panic) => {
            told.panic = Some(panic);
            1
        }
    }
}

/// Gives every buffer its offset.
pub fn plan(buffers: &[Buffer], options: &Options) -> Result<Plan, Error> {
    plan_raw(buffers, options, None)
}

/// Calls `tell` on this thread with each better plan, and about ten times a second; where it returns false, the
/// best plan so far is the answer. The search runs on a thread of its own.
pub fn plan_telling(
    buffers: &[Buffer],
    options: &Options,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<Plan, Error> {
    let mut told = Told { tell, panic: None };
    let found = plan_raw(buffers, options, Some(&mut told));
    match told.panic {
        Some(panic) => resume_unwind(panic),
        None => found,
    }
}

fn plan_raw(buffers: &[Buffer], options: &Options, told_too: Option<&mut Told>) -> Result<Plan, Error> {
    let columns = Columns::of(buffers);
    let mut offsets = vec![0; buffers.len()];
    let mut outcome = raw::Outcome::default();
    let mut given = unsafe { raw::memoir_plan_defaults() };
    given.deadline_s = options.deadline_s;
    given.capacity = options.capacity.unwrap_or(u64::MAX);
    given.threads = options.threads;
    given.seed = options.seed;
    given.work_limit = options.work_limit;
    given.tolerance_bytes = options.tolerance_bytes;
    given.tolerance_share = options.tolerance_share;
    if let Some(one) = told_too {
        given.progress = Some(told);
        given.context = std::ptr::from_mut(one).cast();
    }
    // All arrays have as many elements as there are buffers, and outlive the call.
    check(unsafe {
        raw::memoir_plan(
            buffers.len(),
            columns.lower.as_ptr(),
            columns.upper.as_ptr(),
            columns.size.as_ptr(),
            columns.alignment.as_ptr(),
            &given,
            offsets.as_mut_ptr(),
            &mut outcome,
        )
    })?;
    Ok(Plan {
        offsets,
        arena_size: outcome.arena_size,
        lower_bound: outcome.lower_bound,
        optimal: outcome.optimal != 0,
    })
}

/// Who lies on whom in a plan: offsets for any other sizes of the same buffers.
pub struct Skeleton {
    raw: *mut raw::Skeleton,
}

// It is only read once it is made.
unsafe impl Send for Skeleton {}
unsafe impl Sync for Skeleton {}

impl Skeleton {
    /// Of a plan of these buffers, whose sizes must be 1 or more.
    pub fn of(buffers: &[Buffer], plan: &Plan) -> Result<Self, Error> {
        if plan.offsets.len() != buffers.len() {
            return Err(Error::Refused("there must be one offset per buffer".into()));
        }
        let columns = Columns::of(buffers);
        let raw = unsafe {
            raw::memoir_skeleton_create(
                buffers.len(),
                columns.lower.as_ptr(),
                columns.upper.as_ptr(),
                columns.size.as_ptr(),
                columns.alignment.as_ptr(),
                plan.offsets.as_ptr(),
            )
        };
        if raw.is_null() {
            return Err(Error::Refused(why()));
        }
        Ok(Skeleton { raw })
    }

    /// Writes one offset per buffer and returns the arena's size. Allocates nothing.
    pub fn place(&self, sizes: &[u64], offsets: &mut [u64]) -> Result<u64, Error> {
        let count = unsafe { raw::memoir_skeleton_count(self.raw) };
        if sizes.len() != count || offsets.len() != count {
            return Err(Error::Refused(format!("there must be {count} sizes and offsets")));
        }
        let mut arena = 0;
        check(unsafe {
            raw::memoir_skeleton_place(self.raw, sizes.as_ptr(), offsets.as_mut_ptr(), &mut arena)
        })?;
        Ok(arena)
    }
}

impl Drop for Skeleton {
    fn drop(&mut self) {
        unsafe { raw::memoir_skeleton_destroy(self.raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> [Buffer; 3] {
        [Buffer::new(0, 4, 2), Buffer::new(2, 7, 4), Buffer::new(4, 9, 2)]
    }

    #[test]
    fn a_plan_is_optimal() {
        let found = plan(&three(), &Options::default()).unwrap();
        assert_eq!((found.arena_size, found.lower_bound, found.optimal), (6, 6, true));
    }

    /// Enough of them that a proof takes long.
    fn many(count: u64) -> Vec<Buffer> {
        let mut state = 7u64;
        let mut draw = |most| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        (0..count)
            .map(|_| {
                let lower = draw(count);
                Buffer::new(lower, lower + 1 + draw(40), 1 + draw(1000))
            })
            .collect()
    }

    fn holds(buffers: &[Buffer], plan: &Plan) -> bool {
        let end = |i: usize| plan.offsets[i] + buffers[i].size;
        (0..buffers.len()).all(|i| {
            end(i) <= plan.arena_size
                && (0..i).all(|j| {
                    buffers[i].lower >= buffers[j].upper
                        || buffers[j].lower >= buffers[i].upper
                        || plan.offsets[i] >= end(j)
                        || plan.offsets[j] >= end(i)
                })
        })
    }

    #[test]
    fn a_work_limit_repeats_itself() {
        let options = Options { work_limit: 20_000, ..Options::default() };
        let (one, other) = (plan(&many(200), &options).unwrap(), plan(&many(200), &options).unwrap());
        assert_eq!(one.offsets, other.offsets);
        assert!(holds(&many(200), &one));
    }

    #[test]
    fn a_tolerance_is_good_enough() {
        let options = Options { tolerance_share: 1.0, ..Options::default() };
        let found = plan(&many(200), &options).unwrap();
        assert!(found.arena_size <= 2 * found.lower_bound);
    }

    #[test]
    fn progress_is_told_and_can_stop() {
        let buffers = many(3000);
        let endless = Options { deadline_s: f64::INFINITY, ..Options::default() };
        let mut last = None;
        let mut calls = 0;
        let found = plan_telling(&buffers, &endless, &mut |now| {
            calls += 1;
            assert!(now.arena_size.unwrap_or(u64::MAX) <= last.unwrap_or(u64::MAX));
            last = now.arena_size;
            last.is_none()
        });
        let found = found.unwrap();
        assert!(holds(&buffers, &found));
        assert!(found.optimal || calls > 0);
    }

    #[test]
    #[should_panic(expected = "of the caller's")]
    fn a_panic_of_the_callers_comes_back() {
        let endless = Options { deadline_s: f64::INFINITY, ..Options::default() };
        let found = plan_telling(&many(3000), &endless, &mut |_| panic!("of the caller's"));
        assert!(found.is_err(), "of the caller's, where it was never called");
    }

    #[test]
    fn what_cannot_be_is_told() {
        let tight = Options { capacity: Some(5), ..Options::default() };
        assert_eq!(plan(&three(), &tight).unwrap_err(), Error::Infeasible);
        let inverted = plan(&[Buffer::new(4, 2, 1)], &Options::default()).unwrap_err();
        assert!(matches!(inverted, Error::Refused(what) if what.contains("buffer 0")));
    }

    #[test]
    fn a_skeleton_holds_for_other_sizes() {
        let found = plan(&three(), &Options::default()).unwrap();
        let skeleton = Skeleton::of(&three(), &found).unwrap();
        let mut offsets = [0; 3];
        assert_eq!(skeleton.place(&[20, 40, 20], &mut offsets).unwrap(), 60);
        assert!(skeleton.place(&[1], &mut offsets).is_err());
    }
}
