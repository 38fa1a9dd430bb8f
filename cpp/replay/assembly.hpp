// What a drawn step becomes: n-step returns, frame stacks, sequences, relabelled goals, derived next
// observations, and any combination of them, put together at draw time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage/episodes.hpp"
#include "storage/next_rows.hpp"
#include "storage/ring.hpp"
#include "storage/row_store.hpp"
#include "support/random.hpp"

namespace replaylab {

enum class Strategy : int { none = -1, final = 0, future = 1, episode = 2 };

// What Python's transforms say, already checked there. Numbers of fields are those of the declaration.
struct TransformConfig {
    std::int64_t n_step = 0;  // K; 0: no n-step returns
    double gamma = 1.0;
    std::vector<std::int64_t> last;  // fields of which the last of the K steps' value is returned

    std::int64_t frames = 0;  // k; 0: no stacks
    bool repeat = true;       // padding; else zeros
    std::vector<std::int64_t> stacked;

    std::int64_t length = 0;  // of a sequence's learned part; 0: no sequences
    std::int64_t stride = 0, burn_in = 0;
    std::vector<std::int64_t> states;  // fields of which only the first step's value is returned

    Strategy strategy = Strategy::none;
    double share = 0.0;  // of rows that are relabelled
    // Field desired[i] of a relabelled row gets the value of field achieved[i] of the goal step.
    std::vector<std::int64_t> achieved, desired;

    bool derived = false;                // next_obs is not stored
    std::vector<std::int64_t> partners;  // by field: that of obs.x for next_obs.x; −1

    bool looks_around() const { return n_step > 0 || frames > 0 || length > 0 || strategy != Strategy::none; }
};

bool is_next_obs(const std::string& field);

// Where a field is stored, and what of a drawn row it shows.
struct Shown {
    std::int64_t column;       // of the row store
    bool of_next = false;      // from the row after the step: derived next_obs
    bool of_last = false;      // of the last of the n steps, not the first
    std::int64_t before = -1;  // if stacked: the column of the frames before the newest; else −1
    bool after = false;  // if stacked: the frame before the newest is the step's own, not its predecessor's
    bool state = false;  // only the first step of a sequence shows it
};

// Where the columns go that a batch has besides the fields; null where it has none.
struct ExtraTargets {
    float* discount = nullptr;
    std::int64_t* n_steps = nullptr;
    bool* mask = nullptr;
    bool* relabelled = nullptr;
    std::int64_t* slots = nullptr;
};

// One replica's parts, as a row is put together from them. Null: not kept.
struct Source {
    std::int64_t replica;
    const Ring& ring;
    Random& random;
    const Episodes* episodes;
    const NextRows* next_rows;
};

class Assembly {
  public:
    Assembly(const TransformConfig& config, std::vector<Shown> shown, const RowStore& rows);

    const TransformConfig& config() const { return config_; }
    const std::vector<Shown>& shown() const { return shown_; }

    // Steps of a drawn row: T of a sequence, else 1.
    std::int64_t steps() const { return config_.length > 0 ? config_.burn_in + config_.length : 1; }

    // Rewards and ends are given for each of the n steps, not added up, because goals that change change
    // them.
    bool inner() const { return config_.n_step > 0 && config_.strategy != Strategy::none; }

    // Lengths a field's values have in a batch between the batch axis and their own shape.
    std::vector<std::int64_t> axes(std::size_t field) const;

    // Puts together the drawn slots; row k becomes row from + k of the targets.
    void gather(const Source& source, const std::int64_t* slots, std::int64_t n, std::int64_t from,
                char* const* targets, const ExtraTargets& extra);

    // Only finds the rows that these slots show, for own().
    void find_own(const Source& source, const std::int64_t* slots, std::int64_t n);

    // Rows of the ring that the last gather or find_own showed as the steps themselves, without what was put
    // around them.
    const std::vector<std::int64_t>& own() const { return own_; }

  private:
    struct Position {
        Episodes::Span span;
        bool stored;
    };

    // Fields that show the same rows, and where in those they are.
    struct Group {
        std::vector<std::size_t> fields;
        RowPart part;
    };

    Position at(const Source& source, const Episodes::Span& span, std::int64_t step) const;
    std::int64_t row_of(const Source& source, const Shown& field, std::int64_t slot) const;
    std::int64_t row_of(const Position& position) const;
    void follow(const Source& source, std::int64_t from, char* const* targets, const ExtraTargets& extra);
    void stack_all(const Source& source, std::int64_t n, std::int64_t from, char* const* targets);
    void stack(const Source& source, const Shown& field, std::int64_t begin, std::int64_t end,
               std::int64_t from, char* target);
    void show_state(const Source& source, const Shown& field, std::int64_t n, std::int64_t from,
                    char* target);
    void draw_goals(const Source& source, const std::int64_t* slots, std::int64_t n, bool* relabelled);
    void relabel(const Source& source, std::int64_t n, std::int64_t from, char* const* targets);
    void copy(const Source& source, std::int64_t column, char* target);
    void copy_all(const Source& source, const Group& group, const std::vector<std::int64_t>& rows,
                  std::int64_t from, char* const* targets);
    std::int64_t inner_steps() const { return inner() ? config_.n_step : 1; }

    TransformConfig config_;
    std::vector<Shown> shown_;
    const RowStore& rows_;
    std::int64_t reward_ = -1, terminated_ = -1;  // fields
    Group own_group_, last_group_, next_group_;   // plain fields: of the steps, their last, what comes after
    std::vector<Position> positions_;             // n × T
    std::vector<std::int64_t> own_;            // n × T rows: the steps themselves; the zero row where none is
    std::vector<Position> ends_;               // n × T [× K]: the last of the steps taken together
    std::vector<std::int64_t> last_, next_;    // rows: of those, and of what comes after them
    std::vector<std::int64_t> some_, places_;  // scratch: rows, and where their values go
    std::vector<std::int64_t> picked_, goals_;  // relabelled rows, and their goals' slots
    std::vector<char*> targets_;
};

}  // namespace replaylab
