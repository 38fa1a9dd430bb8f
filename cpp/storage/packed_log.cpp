#include "storage/packed_log.hpp"

#include <algorithm>
#include <cstring>

#include "storage/lz4.hpp"
#include "support/error.hpp"
#include "support/prefetch.hpp"

namespace replaylab {

namespace {

constexpr std::int64_t kSmallest = std::int64_t{1} << 16, kLargest = std::int64_t{1} << 23;  // of a segment
constexpr std::int64_t kSegments = 64;  // about so many hold everything, if nothing can be compressed
constexpr std::int64_t kValues = 16;    // a segment holds at least so many
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kPlaces = std::int64_t{1} << 24;  // of segments, at most
constexpr std::size_t kKeys = 16;                        // unpacked keys kept for the next reader
constexpr int kLongestPause = 31;

void exclusive_or(char* __restrict into, const char* __restrict other, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) into[i] = static_cast<char>(into[i] ^ other[i]);
}

[[noreturn]] void damaged() {
    fail("SnapshotError", "a compressed value is damaged: its bytes cannot be unpacked");
}

}  // namespace

PackedLog::PackedLog(std::int64_t bytes, std::int64_t values)
    : bytes_(static_cast<std::size_t>(bytes)), key_value_(bytes_), difference_(bytes_) {
    const std::int64_t all = values > kLargest * kSegments / bytes ? kLargest * kSegments : values * bytes;
    const std::int64_t wanted = std::min(std::max(all / kSegments, kSmallest), kLargest);
    segment_bytes_ = (std::max(wanted, kValues * (bytes + 8)) + kPage - 1) / kPage * kPage;
    // A segment holds a value, or is the open one. Twice: values of closing rows; and some that are put
    // again.
    places_ = std::min(kPlaces, 2 * std::min(values, kPlaces) + 64);
}

void PackedLog::reserve(std::int64_t n) {
    const std::int64_t most = static_cast<std::int64_t>(bytes_) + header(Kind::kRaw);
    const std::int64_t each = segment_bytes_ / most;
    const std::int64_t left =
        open_ < 0 ? 0 : (segment_bytes_ - segments_[static_cast<std::size_t>(open_)].used) / most;
    if (n <= left) return;
    const std::int64_t needed = (n - left + each - 1) / each;
    while (static_cast<std::int64_t>(spare_.size()) < needed)
        spare_.push_back(std::make_unique<Arena>(static_cast<std::size_t>(segment_bytes_)));
    segments_.reserve(segments_.size() + static_cast<std::size_t>(needed));
}

void PackedLog::trim() {
    if (spare_.size() > 1) spare_.resize(1);
}

void PackedLog::open() {
    if (open_ >= 0) {
        Segment& full = segments_[static_cast<std::size_t>(open_)];
        open_ = -1;
        if (full.held == 0) drop(full);
    }
    const auto free = std::find_if(segments_.begin(), segments_.end(),
                                   [](const Segment& segment) { return segment.memory == nullptr; });
    open_ = free - segments_.begin();
    if (spare_.empty()) spare_.push_back(std::make_unique<Arena>(static_cast<std::size_t>(segment_bytes_)));
    if (free == segments_.end()) segments_.emplace_back();
    Segment& segment = segments_[static_cast<std::size_t>(open_)];
    segment.memory = std::move(spare_.back());
    spare_.pop_back();
    segment.serial = next_serial_++;
    key_at_ = -1;
}

void PackedLog::drop(Segment& segment) {
    used_ -= segment.used;
    if (spare_.empty()) spare_.push_back(std::move(segment.memory));
    segment = Segment{};
}

// The value's difference to the key as a block, if that is worth it: a value far from the key is a better key
// for those that come.
std::size_t PackedLog::pack_difference(const char* value, char* target) {
    if (key_at_ < 0) return 0;
    if (pause_ > 0) {
        --pause_;
        return 0;
    }
    std::memcpy(difference_.data(), value, bytes_);
    exclusive_or(difference_.data(), key_value_.data(), bytes_);
    const std::size_t size = lz4::compress(difference_.data(), bytes_, target, key_size_ / 2);
    // Where differences fail one after another (pictures that share nothing), trying costs more than it
    // brings: wait twice as long after each failure, up to a bound, and try again after a success.
    failed_ = size > 0 ? 0 : std::min(2 * failed_ + 1, kLongestPause);
    pause_ = failed_ / 2;
    return size;
}

PackedLog::Ref PackedLog::put(const char* value) {
    const std::int64_t most = static_cast<std::int64_t>(bytes_) + header(Kind::kRaw);
    if (open_ < 0 || segments_[static_cast<std::size_t>(open_)].used + most > segment_bytes_) open();
    Segment& segment = segments_[static_cast<std::size_t>(open_)];
    char* const at = segment.memory->data() + segment.used;
    Kind kind = Kind::kDifference;
    std::size_t size = pack_difference(value, at + header(kind));
    if (size == 0) {
        // A copy first, which is what the coming differences are to: another thread may change the caller's.
        std::memcpy(key_value_.data(), value, bytes_);
        kind = Kind::kBlock;
        size = lz4::compress(key_value_.data(), bytes_, at + header(kind), bytes_ - 1);
        if (size == 0) {
            kind = Kind::kRaw;
            size = bytes_;
            std::memcpy(at + header(kind), key_value_.data(), size);
        }
        key_at_ = segment.used;
        key_size_ = size;
    }
    const std::uint32_t words[2] = {static_cast<std::uint32_t>(size) << 2 | static_cast<std::uint32_t>(kind),
                                    static_cast<std::uint32_t>(key_at_)};
    std::memcpy(at, words, static_cast<std::size_t>(header(kind)));
    const Ref where = ref(open_, segment.used);
    const std::int64_t total = static_cast<std::int64_t>(size) + header(kind);
    segment.used += total;
    segment.living += total;
    ++segment.held;
    used_ += total;
    living_ += total;
    return where;
}

// Every read goes through here, so nothing outside a segment is ever touched, whatever the bytes are.
PackedLog::Entry PackedLog::entry(std::int64_t segment, std::int64_t offset) const {
    if (segment < 0 || segment >= static_cast<std::int64_t>(segments_.size())) damaged();
    const Segment& one = segments_[static_cast<std::size_t>(segment)];
    if (one.memory == nullptr || offset + header(Kind::kRaw) > one.used) damaged();
    const char* const at = one.memory->data() + offset;
    std::uint32_t words[2] = {0, 0};
    std::memcpy(words, at, 4);
    const auto kind = static_cast<Kind>(words[0] & 3);
    const std::size_t size = words[0] >> 2;
    if (kind > Kind::kDifference || static_cast<std::int64_t>(size) + header(kind) > one.used - offset)
        damaged();
    if (kind == Kind::kRaw && size != bytes_) damaged();
    std::memcpy(words, at, static_cast<std::size_t>(header(kind)));
    return Entry{kind, size, at + header(kind), static_cast<std::int64_t>(words[1])};
}

void PackedLog::unpack(const Entry& entry, char* value) const {
    if (entry.kind == Kind::kRaw)
        std::memcpy(value, entry.packed, bytes_);
    else if (!lz4::decompress(entry.packed, entry.size, value, bytes_))
        damaged();
}

// Frames drawn together often share a key (a stack of them nearly always does): the last few stay unpacked.
const char* PackedLog::key(std::int64_t segment, std::int64_t offset) {
    if (keys_.empty()) keys_.resize(kKeys);
    const std::int64_t serial = segments_[static_cast<std::size_t>(segment)].serial;
    const auto hash =
        (static_cast<std::uint64_t>(serial) * 31 + static_cast<std::uint64_t>(offset)) * 0x9E3779B97F4A7C15u;
    Key& kept = keys_[static_cast<std::size_t>(hash >> 60)];
    if (kept.serial != serial || kept.offset != offset) {
        const Entry found = entry(segment, offset);
        if (found.kind == Kind::kDifference) damaged();
        kept.serial = -1;
        kept.value.resize(bytes_);
        unpack(found, kept.value.data());
        kept.serial = serial;
        kept.offset = offset;
    }
    return kept.value.data();
}

void PackedLog::get(Ref ref, char* value) {
    if (ref == 0) {
        std::memset(value, 0, bytes_);
        return;
    }
    if ((ref & kLoose) != 0) {
        if (ref - kLoose >= loose_.size()) damaged();
        std::memcpy(value, loose_[static_cast<std::size_t>(ref - kLoose)].data(), bytes_);
        return;
    }
    const std::int64_t segment = segment_of(ref);
    const Entry found = entry(segment, static_cast<std::int64_t>(ref & 0xFFFFFFFFu));
    unpack(found, value);
    if (found.kind == Kind::kDifference) exclusive_or(value, key(segment, found.key), bytes_);
}

PackedLog::Ref PackedLog::set_loose(std::int64_t number, const char* value) {
    const auto index = static_cast<std::size_t>(number);
    if (index >= loose_.size()) loose_.resize(index + 1, std::vector<char>(bytes_));
    std::memcpy(loose_[index].data(), value, bytes_);
    return kLoose | static_cast<Ref>(number);
}

bool PackedLog::is_loose(std::int64_t number, const char* value) const {
    const auto index = static_cast<std::size_t>(number);
    return index < loose_.size() && std::memcmp(loose_[index].data(), value, bytes_) == 0;
}

void PackedLog::prefetch(Ref ref) const {
    if (ref == 0 || (ref & kLoose) != 0) return;
    const char* at =
        segments_[static_cast<std::size_t>(segment_of(ref))].memory->data() + (ref & 0xFFFFFFFFu);
    for (int line = 0; line < 4; ++line) replaylab::prefetch(at + 64 * line);
}

// One living value keeps its whole segment. Once more than half of the bytes (and a few segments) are of dead
// values, the caller puts what lives in the emptiest segment again, which is then let go of.
std::int64_t PackedLog::sparse() const {
    if (used_ <= 2 * living_ + 4 * segment_bytes_) return -1;
    std::int64_t least = -1;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        if (segments_[i].memory == nullptr || index == open_) continue;
        if (least < 0 || segments_[i].living < segments_[static_cast<std::size_t>(least)].living)
            least = index;
    }
    return least;
}

std::int64_t PackedLog::nbytes() const {
    auto taken = static_cast<std::int64_t>(spare_.size());
    for (const Segment& segment : segments_) taken += segment.memory != nullptr;
    std::size_t kept = key_value_.size() + difference_.size();
    for (const Key& one : keys_) kept += one.value.size();
    kept += loose_.size() * bytes_;
    return taken * segment_bytes_ + static_cast<std::int64_t>(kept);
}

void PackedLog::visit(const std::string& name, StateVisitor& state) {
    // The open place, the next serial, moves; then place, serial and length of every segment.
    std::vector<std::int64_t> numbers, loose;
    const std::size_t words = (bytes_ + 7) / 8;
    if (!state.restoring()) {
        numbers = {open_, next_serial_, moves_};
        for (std::size_t i = 0; i < segments_.size(); ++i)
            if (segments_[i].memory != nullptr)
                numbers.insert(numbers.end(),
                               {static_cast<std::int64_t>(i), segments_[i].serial, segments_[i].used});
        loose.resize(loose_.size() * words);
        for (std::size_t i = 0; i < loose_.size(); ++i)
            std::memcpy(loose.data() + i * words, loose_[i].data(), bytes_);
    }
    state.visit(name + ".segments", numbers);
    state.visit(name + ".loose", loose);
    if (state.restoring()) restore(name, numbers, loose);
}

void PackedLog::restore(const std::string& name, const std::vector<std::int64_t>& numbers,
                        const std::vector<std::int64_t>& loose) {
    const auto check = [&](bool right) {
        if (!right)
            fail("SnapshotError", "the snapshot's array `", name, ".segments` does not describe segments");
    };
    check(numbers.size() % 3 == 0 && !numbers.empty());
    segments_.clear();
    keys_.clear();
    key_at_ = -1;
    used_ = living_ = 0;
    next_serial_ = numbers[1];
    moves_ = numbers[2];
    check(next_serial_ >= 0 && next_serial_ <= StateVisitor::kMost);
    check(moves_ >= 0 && moves_ <= StateVisitor::kMost);
    for (std::size_t i = 3; i < numbers.size(); i += 3) {
        // Places rise, with gaps where segments were let go of.
        const std::int64_t place = numbers[i], serial = numbers[i + 1], used = numbers[i + 2];
        check(place >= static_cast<std::int64_t>(segments_.size()) && place < places_);
        check(serial >= 0 && serial < next_serial_ && used >= 0 && used <= segment_bytes_);
        segments_.resize(static_cast<std::size_t>(place) + 1);
        Segment& segment = segments_.back();
        segment.memory = std::make_unique<Arena>(static_cast<std::size_t>(segment_bytes_));
        segment.serial = serial;
        segment.used = used;
        used_ += used;
    }
    open_ = numbers[0];
    check(open_ >= -1 && open_ < static_cast<std::int64_t>(segments_.size()));
    check(open_ < 0 || segments_[static_cast<std::size_t>(open_)].memory != nullptr);
    const std::size_t words = (bytes_ + 7) / 8;
    check(loose.size() % words == 0);
    loose_.assign(loose.size() / words, std::vector<char>(bytes_));
    for (std::size_t i = 0; i < loose_.size(); ++i)
        std::memcpy(loose_[i].data(), loose.data() + i * words, bytes_);
}

std::vector<PackedLog::Part> PackedLog::parts() const {
    std::vector<Part> parts;
    for (const Segment& segment : segments_)
        if (segment.memory != nullptr)
            parts.push_back({segment.serial, segment.memory->data(), segment.used});
    return parts;
}

void PackedLog::hold(Ref ref, std::int64_t times) {
    if ((ref & kLoose) != 0 && ref - kLoose >= loose_.size()) damaged();
    if (ref == 0 || (ref & kLoose) != 0) return;
    const std::int64_t index = segment_of(ref);
    const std::int64_t bytes = times * entry(index, static_cast<std::int64_t>(ref & 0xFFFFFFFFu)).total();
    Segment& segment = segments_[static_cast<std::size_t>(index)];
    segment.held += times;
    segment.living += bytes;
    living_ += bytes;
    if (segment.held == 0 && index != open_) drop(segment);
}

void PackedLog::settle() {
    for (std::size_t i = 0; i < segments_.size(); ++i)
        if (segments_[i].memory != nullptr && segments_[i].held == 0 && static_cast<std::int64_t>(i) != open_)
            drop(segments_[i]);
}

}  // namespace replaylab
