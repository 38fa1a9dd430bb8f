// R independent replays of E environments each: rows, ids, sampler state and random streams. Knows
// nothing of Python; every public member may be called from any thread, without Python's lock: see gil.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "replay/assembly.hpp"
#include "samplers/sampler.hpp"
#include "storage/episodes.hpp"
#include "storage/mapped_rows.hpp"
#include "storage/next_rows.hpp"
#include "storage/ring.hpp"
#include "storage/row_store.hpp"
#include "support/random.hpp"
#include "support/replay_lock.hpp"

namespace replaylab {

struct ReplayConfig {
    std::vector<Column> fields;  // as declared
    std::int64_t capacity = 0, replicas = 1, num_envs = 1;
    SamplerConfig sampler;
    std::vector<Random::State> streams;  // one a replica
    // The step after an episode's end is the environment resetting itself (Gymnasium's NEXT_STEP mode) and is
    // not stored. Needs the boolean fields `terminated` and `truncated`.
    bool skip_after_end = false;
    TransformConfig transforms;
    Retention retention = Retention::fifo;
    bool count_replays = false;
    std::int64_t min_size = 1;            // steps that a batch is drawn from at least
    std::unique_ptr<MappedRows> outside;  // where the rows are if not in this process's memory
    // Somebody else has the rows: fields are read where they say that an episode ends, but neither stored nor
    // shown.
    bool rows_elsewhere = false;

    // What follows: see replay_layout.cpp. Fields that have a column: all but a derived next_obs, and none
    // where somebody else has the rows.
    std::vector<std::int64_t> stored_fields() const;
    std::vector<Column> stored_columns() const;
    // Where each field is stored and what of a row it shows.
    std::vector<Shown> shown_fields(bool transformed) const;
    bool keeps_episodes() const;

    std::int64_t row_nbytes() const;
    // Bytes for the number of the environment of each slot's step: none with one environment, or where the
    // record of its episode holds that number.
    std::int64_t environments_nbytes() const;
    // Bytes of one replica, before any is taken; and what may come on top, uncompressed, as steps of so many
    // streams come in: environments, of each writer if the rows are outside.
    std::int64_t nbytes() const;
    std::int64_t grown_nbytes(std::int64_t streams) const;
};

// What happened so far in one replica.
struct Tally {
    std::int64_t samples = 0;  // rows drawn
    std::int64_t stale = 0;    // ids of steps to change that were not stored any more
};

class Replay {
  public:
    explicit Replay(ReplayConfig config);

    // Stores steps laid out [R][T][E]; sources[f] points at field f of all of them. Rows where `where` is
    // false, and those a reservoir does not keep, get id −1. ids receives [R][T][E] numbers. False, and
    // nothing is stored, while another thread saves the rows.
    bool add(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids);

    // Stores n steps in these places of who stores the rows; ids receives their numbers. Where the retention
    // is `assigned`, in one replica. False as for add; throws, changing nothing, on a place that is not
    // there.
    bool assign(const std::int64_t* places, std::int64_t n, std::int64_t* ids);

    // The next step of these environments [R][E] (null: of all) follows none that is stored.
    void end_episode(const bool* where);

    // Writes values of the steps of ids [R][n] into their rows; of equal ids the last wins. sources[f] points
    // at [R][n] values of field f, null: unchanged. Returns how many ids were still stored in `written`.
    // False as for add; throws, changing nothing, on an id never given out, and where the rows are outside.
    bool write(const std::int64_t* ids, std::int64_t n, const char* const* sources, std::int64_t& written);

    // Removes the steps of ids [R][n] from all that is drawn or looked at. Returns how many ids were still
    // stored. Throws, changing nothing, on an id never given out, and where the rows are outside.
    std::int64_t remove(const std::int64_t* ids, std::int64_t n);

    // For every environment [R][E]: whether the next step stored begins an episode, and whether the next one
    // given is left out, for it is the environment resetting itself. Not for rows outside, which keep that.
    void next_steps(bool* begins, bool* left_out) const;

    std::int64_t batch_rows(std::int64_t batch) const { return replays_[0].sampler->rows(batch); }

    // Draws a batch in every replica: targets[f] receives [R][rows] values of field f, each with the axes
    // that assembly() says. `scheduled` holds the sampler's numbers that change over a run; replica r's begin
    // at r·stride. Counted: the rows are drawn for good; else count() says later which of them are.
    void sample(std::int64_t batch, const double* scheduled, std::int64_t stride, bool counted,
                char* const* targets, std::int64_t* ids, double* probabilities, float* weights,
                const ExtraTargets& extra);

    // Throws what sample() would throw for want of steps or of a random stream, and draws nothing.
    void check_draw(std::int64_t batch) {
        const auto held = lock_.take();
        require_streams();
        catch_up();
        for (const Single& one : replays_) one.sampler->check(one.ring, batch);
    }

    // Gives each replica another random stream.
    void reseed(const std::vector<Random::State>& streams);

    // Whether the random streams are copies of another process's: sample() and check_streams() then throw.
    bool streams_copied() const;
    void set_streams_copied();
    void check_streams() const;

    // Takes note that the rows of ids [R][n], from a batch that was not counted, were drawn.
    void count(const std::int64_t* ids, std::int64_t n);

    // Feeds values [R][n] back for ids [R][n]; returns how many ids were still stored. Throws, changing
    // nothing, on an id never given out or a value that is no priority.
    std::int64_t update(const std::int64_t* ids, const double* values, std::int64_t n, bool td_errors);

    // The sampling probability of one row of a batch, for ids [R][n]; 0 for steps no longer stored.
    void probabilities(const std::int64_t* ids, std::int64_t n, std::int64_t batch, const double* scheduled,
                       std::int64_t stride, double* out);

    // Per replica: what its sampler's sampling distribution is in proportion to, together; empty where it is
    // another kind of sampling distribution.
    std::vector<SamplingTotals> totals();

    // Copies the rows of ids [R][n] out: targets[f] receives [R][n] values of field f. Throws on an id that
    // is not stored. Transformed: what a batch with these steps drawn would hold. Aside: and nothing
    // remembers it, neither counts nor random streams.
    void gather(const std::int64_t* ids, std::int64_t n, bool transformed, bool aside, char* const* targets,
                const ExtraTargets& extra);

    // The ids of the stored steps of each id's sequence block, [R][n][width], oldest first, then −1; a width
    // of 1: of the oldest alone, else the stride.
    void blocks(const std::int64_t* ids, std::int64_t n, std::int64_t width, std::int64_t* out);

    // The environment of each of these stored or removed steps of the first replica. Of rows outside: its
    // writer × E + e, or −1 where the row has gone to a newer step. First in, first out only.
    void environments(const std::int64_t* ids, std::int64_t n, std::int64_t* out) const;

    // Per replica: of each environment whose episode is open, the id of its newest step, if that is stored.
    // First in, first out only, and not for rows outside.
    std::vector<std::vector<std::int64_t>> open_steps() const;

    // Nobody has said yet whether the environments continue where they were when this was saved: add() throws
    // while one is about to reset itself, or, if that matters here, in the middle of an episode.
    void ask_to_continue(bool open_matters);
    bool asks_to_continue() const;

    // Drops every step. Ids and random streams continue, and so do the episodes under way; samplers begin
    // again.
    bool clear();  // false: a save is on, wait for it

    // Per replica: steps stored now, and the id the next one will get.
    void counts(std::int64_t* sizes, std::int64_t* next_ids) const;

    // Walks over everything but the rows, to save or to restore it, replica by replica.
    void visit(StateVisitor& state);

    // The same as everything stands now, for `state` to copy.
    void copy(StateVisitor& state);

    // And lets the rows in this process's memory stay as they are until lock().thaw() is given what this
    // returns; 0 where another thread does so.
    std::uint64_t freeze(StateVisitor& state);

    ReplayLock& lock() { return lock_; }

    // After visit() has restored: finds the rows that are outside again, and lets samplers recompute what
    // they derive. False if the rows outside are not the same.
    bool restored();

    // Makes the rows outside durable; and lets go of them, after which every call fails.
    void flush();
    void close();
    const MappedRows* outside() const { return outside_.get(); }

    const RowStore& rows() const { return rows_; }

    // After visit() has restored and the bytes of compressed columns are there: finds out what they hold.
    void settle() { rows_.settle(); }
    const Assembly& assembly() const { return assembly_; }
    std::int64_t replicas() const { return static_cast<std::int64_t>(replays_.size()); }
    std::int64_t nbytes() const;

  private:
    // What an environment's last step did to its episode. None: there is no such step, or none that the next
    // one could follow.
    enum Last : char { kNone = 0, kEnded = 1, kOpen = 2 };

    static constexpr double kNever = std::numeric_limits<double>::lowest();

    struct Single {
        Ring ring;
        Random random;
        std::unique_ptr<Sampler> sampler;
        std::vector<char> last;               // per environment: what its last step was, a Last
        std::vector<std::uint32_t> envs;      // by slot: the environment, where nothing else knows it
        std::unique_ptr<Episodes> episodes;   // where something looks around
        std::unique_ptr<NextRows> next_rows;  // where next_obs is derived
        std::vector<std::uint32_t> counts;    // by slot, if counted: how often its step was drawn
        Tally tally;
        std::vector<double> times;            // by slot, where the sampler has a clock
        double now = kNever, added = kNever;  // the latest of them, and of those that this process added
        std::int64_t writes = 0;              // calls that have changed rows of stored steps
    };

    // The field of this name, where it says of each step whether it ended its episode, or its time.
    struct Flag {
        std::int64_t field = -1;
        Column column;
        bool set(const char* const* sources, std::int64_t step) const {
            if (field < 0) return false;
            const char* value = sources[field] + step * column.bytes;
            return column.bytes == 1 ? *value != 0 : is_set(column, value);
        }
    };

    bool takes(Single& one, std::int64_t env, const char* const* sources, std::int64_t step,
               const bool* where, bool& ends) const;
    bool stores_alike(const Single& one) const;
    void add_run(std::int64_t replica, const char* const* sources, std::int64_t steps, std::int64_t from,
                 std::int64_t* ids);
    void add_outside(const char* const* sources, std::int64_t steps, const bool* where, std::int64_t* ids);
    void check_clock(const char* const* sources, std::int64_t steps, const bool* where);
    void note_times(std::int64_t replica);
    bool may_change() const;
    void require_streams() const;
    bool resets_next(const Single& one, std::int64_t env) const {
        return skip_after_end_ && one.last[static_cast<std::size_t>(env)] == kEnded;
    }
    void check_decided() const;
    std::int64_t environment(const Single& one, std::int64_t slot) const;
    std::int64_t column_of(std::int64_t field) const;
    bool terminated(std::int64_t replica, std::int64_t slot);
    void cut(Single& one, std::int64_t env);
    void report_ends(Single& one);
    std::vector<End> stored_ends(std::int64_t replica);
    bool find_rows();
    void catch_up();
    void catch_up(std::int64_t replica);
    bool whole(std::int64_t replica, std::int64_t tries);
    void draw(std::int64_t replica, std::int64_t batch, const double* scheduled, char* const* targets,
              std::int64_t* ids, double* probabilities, float* weights, const ExtraTargets& extra);
    Source source(std::int64_t replica);
    // Calls function(k, slot) for every id k of a replica's that is still stored, and counts the others as
    // stale. Returns the number of calls.
    template <typename Function>
    std::int64_t for_stored(std::int64_t replica, const std::int64_t* ids, std::int64_t n,
                            const Function& function) {
        Single& one = replays_[static_cast<std::size_t>(replica)];
        std::int64_t found = 0;
        for (std::int64_t k = replica * n; k < (replica + 1) * n; ++k) {
            const std::int64_t slot = one.ring.find(ids[k]);
            if (slot < 0) {
                one.tally.stale += ids[k] >= 0;
                continue;
            }
            ++found;
            function(k, slot);
        }
        return found;
    }

    void check_stored(std::int64_t replica, const std::int64_t* ids, std::int64_t n) const;
    const std::int64_t* checked(const std::int64_t* ids, std::int64_t n);
    void count(Single& one, std::int64_t rows);

    std::unique_ptr<MappedRows> outside_;  // null: the rows are in this process's memory
    bool closed_ = false;
    bool asks_ = false, open_matters_ = false;  // see ask_to_continue
    bool torn_ = false;  // an error came between the steps taken in from outside, which then lack some
    RowStore rows_;
    std::int64_t num_envs_;
    bool skip_after_end_;
    SamplerConfig sampler_;
    Flag terminated_, truncated_, clock_;
    std::vector<std::int64_t> stored_;  // by column: its field
    std::int64_t nbytes_;
    std::vector<Single> replays_;
    Assembly assembly_;
    Assembly plain_;                            // steps as they were given
    std::vector<std::int64_t> slots_, places_;  // scratch of one call
    std::vector<std::ptrdiff_t> ends_;
    std::vector<End> episode_ends_;  // not reported to the sampler yet
    std::vector<char> scratch_;
    std::vector<double> values_;
    std::vector<const char*> columns_;
    std::vector<std::int64_t> ids_;  // copies of what a caller may change meanwhile
    std::vector<double> fed_;
    mutable ReplayLock lock_;
};

}  // namespace replaylab
