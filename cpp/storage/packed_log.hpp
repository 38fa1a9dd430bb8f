// The values of one compressed column: packed one behind another into a log of segments. A row holds where
// its value lies; a segment whose values are all let go of is used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/arena.hpp"
#include "support/state.hpp"

namespace replaylab {

// Each value is stored as it is, as an LZ4 block, or as an LZ4 block of its difference (exclusive or) to a
// key: an earlier value of the same segment that stands for itself. Since a segment goes as a whole, a key is
// there as long as anything that needs it, whether or not its own step still is.
//
// Not safe from several threads, reading included: it keeps the keys it last unpacked.
class PackedLog {
  public:
    using Ref = std::uint64_t;                   // 0 is a value of zeros, as a fresh row holds it
    static constexpr Ref kLoose = Ref{1} << 63;  // with a number below: the loose value of this number

    // For values of so many bytes, of which about `values` are held at a time.
    PackedLog(std::int64_t bytes, std::int64_t values);

    // Takes the memory that the next n values could need, so that `put` cannot run out of it.
    void reserve(std::int64_t n);
    // Gives back what of that was not needed.
    void trim();

    Ref put(const char* value);
    void release(Ref ref) { hold(ref, -1); }

    // Unpacks a value; throws on bytes that are invalid.
    void get(Ref ref, char* value);
    void prefetch(Ref ref) const;

    // Values that will soon be others lie loose, as they are, each at its number until it is set again.
    Ref set_loose(std::int64_t number, const char* value);
    bool is_loose(std::int64_t number, const char* value) const;
    bool has_loose(std::int64_t number) const { return static_cast<std::size_t>(number) < loose_.size(); }
    Ref put_loose(std::int64_t number) { return put(loose_[static_cast<std::size_t>(number)].data()); }

    // A segment so far from full of values still held that they are better put again elsewhere; −1 if there
    // is none. First in, first out leaves none ever.
    std::int64_t sparse() const;
    static std::int64_t segment_of(Ref ref) { return static_cast<std::int64_t>(ref >> 32) - 1; }

    void moved() { ++moves_; }  // a value was put again: its row changed, though its step did not

    std::int64_t nbytes() const;

    // To save: `visit` names the segments, whose bytes are then read, or after restoring written; then every
    // row that is there must `hold` its reference, and `settle` drops what nobody holds.
    struct Part {
        std::int64_t serial;  // never given twice, so equal serial and length mean equal bytes
        char* data;
        std::int64_t used;
    };
    void visit(const std::string& name, StateVisitor& state);
    std::vector<Part> parts() const;
    void hold(Ref ref, std::int64_t times = 1);
    void settle();

  private:
    enum class Kind : std::uint32_t { kRaw, kBlock, kDifference };
    struct Entry {
        Kind kind;
        std::size_t size;  // of the packed bytes
        const char* packed;
        std::int64_t key;  // where the key begins, of a difference
        std::int64_t total() const { return static_cast<std::int64_t>(size) + header(kind); }
    };
    struct Segment {
        std::unique_ptr<Arena> memory;  // null: this place is free
        std::int64_t serial = 0;
        std::int64_t used = 0;
        std::int64_t held = 0;    // values
        std::int64_t living = 0;  // their bytes
    };
    struct Key {
        std::int64_t serial = -1, offset = -1;
        std::vector<char> value;
    };

    static std::int64_t header(Kind kind) { return kind == Kind::kDifference ? 8 : 4; }
    static Ref ref(std::int64_t segment, std::int64_t offset) {
        return static_cast<Ref>(segment + 1) << 32 | static_cast<Ref>(offset);
    }
    Entry entry(std::int64_t segment, std::int64_t offset) const;
    void unpack(const Entry& entry, char* value) const;
    const char* key(std::int64_t segment, std::int64_t offset);
    std::size_t pack_difference(const char* value, char* target);
    void open();
    void restore(const std::string& name, const std::vector<std::int64_t>& numbers,
                 const std::vector<std::int64_t>& loose);
    void drop(Segment& segment);

    std::size_t bytes_;
    std::int64_t segment_bytes_;
    std::int64_t places_;  // of segments: as many as the values held at a time could need
    std::vector<Segment> segments_;
    std::vector<std::unique_ptr<Arena>> spare_;
    std::int64_t open_ = -1;  // the segment written to
    std::int64_t next_serial_ = 0;
    std::int64_t used_ = 0, living_ = 0;  // over all segments

    std::int64_t key_at_ = -1;  // in the open segment; −1: none yet
    std::size_t key_size_ = 0;  // packed
    std::vector<char> key_value_, difference_;
    int pause_ = 0,
        failed_ = 0;         // values to go before differences are tried again, and how many that last was
    std::vector<Key> keys_;  // unpacked, by a hash of where they lie
    std::vector<std::vector<char>> loose_;
    std::int64_t moves_ = 0;
};

}  // namespace replaylab
