#include "storage/lz4.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "support/dispatch.hpp"

namespace replaylab::lz4 {

namespace {

using Byte = unsigned char;

// A block is a series of sequences: a token (count of literals, length of the match), more bytes for a count
// of 15 or more, the literals, and how far back the match lies. The last sequence has literals only.
constexpr std::size_t kLeastMatch = 4;
constexpr std::size_t kFarthest = 65535;
constexpr std::size_t kLastLiterals = 5;  // the format asks for so many literals at the end
constexpr std::size_t kLastMatch = 12;    // and for no match to start later than this before it
constexpr std::size_t kLargest = 0x7E000000;
constexpr std::size_t kWide = 16;           // bytes copied at once where there is room to write too many
constexpr std::size_t kShortest = 14 + 18;  // room for the longest sequence whose token holds both counts
constexpr unsigned kPatience = 6;           // misses before the search takes longer steps, as a power of two

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
constexpr bool kLittleEndian = true;
#else
constexpr bool kLittleEndian = false;
#endif

template <typename Value>
Value read(const Byte* at) {
    Value value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Copies in steps of 16 bytes, so up to 15 more than asked for.
void copy_wide(Byte* to, const Byte* from, std::size_t count) {
    const Byte* const end = to + count;
    do {
        std::memcpy(to, from, kWide);
        to += kWide;
        from += kWide;
    } while (to < end);
}

// How many bytes are equal, up to `end`.
std::size_t common(const Byte* a, const Byte* b, const Byte* end) {
    const Byte* const start = a;
    for (; a + 8 <= end; a += 8, b += 8) {
        const auto difference = read<std::uint64_t>(a) ^ read<std::uint64_t>(b);
        if (difference == 0) continue;
#if defined(__GNUC__)
        if (kLittleEndian) return static_cast<std::size_t>(a - start + __builtin_ctzll(difference) / 8);
#endif
        break;
    }
    for (; a < end && *a == *b; ++a) ++b;
    return static_cast<std::size_t>(a - start);
}

std::size_t count_bytes(std::size_t count) { return count < 15 ? 0 : (count - 15) / 255 + 1; }

// What of a count does not fit the token's four bits.
Byte* write_count(Byte* to, std::size_t rest) {
    for (; rest >= 255; rest -= 255) *to++ = 255;
    *to++ = static_cast<Byte>(rest);
    return to;
}

// Where four bytes were last seen: positions in as few bytes as the input allows, so that the table stays in
// the fast cache and is cheap to clear.
template <typename Position, unsigned Bits>
class Seen {
  public:
    // Where these bytes were before; from now on they are here.
    std::size_t exchange(const Byte* source, std::size_t at) {
        Position& place = last_[(read<std::uint32_t>(source + at) * 2654435761u) >> (32 - Bits)];
        const std::size_t before = place;
        place = static_cast<Position>(at);
        return before;
    }

  private:
    Position last_[std::size_t{1} << Bits] = {};
};

// Writes literals and the match behind them, `distance` back and kLeastMatch + match bytes long; null if
// there is no room. Wide: kWide bytes behind the literals may be read.
REPLAYLAB_INLINE Byte* write_sequence(Byte* to, const Byte* end, const Byte* from, std::size_t literals,
                                      bool wide, std::size_t distance, std::size_t match) {
    const std::size_t most = 1 + count_bytes(literals) + literals + 2 + count_bytes(match);
    if (static_cast<std::size_t>(end - to) < most) return nullptr;
    *to++ = static_cast<Byte>((literals < 15 ? literals : 15) << 4 | (match < 15 ? match : 15));
    if (literals >= 15) to = write_count(to, literals - 15);
    if (literals > 0) {
        if (wide && static_cast<std::size_t>(end - to) >= literals + kWide)
            copy_wide(to, from, literals);
        else
            std::memcpy(to, from, literals);
        to += literals;
    }
    *to++ = static_cast<Byte>(distance);
    *to++ = static_cast<Byte>(distance >> 8);
    return match >= 15 ? write_count(to, match - 15) : to;
}

template <typename Table>
std::size_t compress_with(const Byte* source, std::size_t size, Byte* target, std::size_t room) {
    Byte* to = target;
    const Byte* const end = target + room;
    std::size_t anchor = 0;  // literals not written yet start here
    if (size > kLastMatch) {
        Table seen;
        const std::size_t last = size - kLastMatch;
        const Byte* const match_end = source + size - kLastLiterals;
        seen.exchange(source, 0);
        std::size_t at = 1;
        for (;;) {
            std::size_t before = 0;
            for (unsigned misses = 1u << kPatience;; ++misses) {
                if (at > last) goto tail;
                before = seen.exchange(source, at);
                if (at - before <= kFarthest &&
                    read<std::uint32_t>(source + before) == read<std::uint32_t>(source + at))
                    break;
                at += misses >> kPatience;
            }
            while (at > anchor && before > 0 && source[at - 1] == source[before - 1]) {
                --at;
                --before;
            }
            for (;;) {
                const std::size_t match =
                    common(source + at + kLeastMatch, source + before + kLeastMatch, match_end);
                const bool wide = at + kWide <= size;
                to = write_sequence(to, end, source + anchor, at - anchor, wide, at - before, match);
                if (to == nullptr) return 0;
                at += kLeastMatch + match;
                anchor = at;
                if (at > last) goto tail;
                seen.exchange(source, at - 2);
                // A match right behind a match needs no search and no literals.
                before = seen.exchange(source, at);
                if (at - before > kFarthest ||
                    read<std::uint32_t>(source + before) != read<std::uint32_t>(source + at))
                    break;
            }
            ++at;
        }
    }
tail:
    const std::size_t literals = size - anchor;
    if (static_cast<std::size_t>(end - to) < 1 + count_bytes(literals) + literals) return 0;
    *to++ = static_cast<Byte>((literals < 15 ? literals : 15) << 4);
    if (literals >= 15) to = write_count(to, literals - 15);
    if (literals > 0) std::memcpy(to, source + anchor, literals);
    return static_cast<std::size_t>(to - target) + literals;
}

std::size_t read_distance(const Byte* from) { return from[0] | static_cast<std::size_t>(from[1]) << 8; }

// Adds a count's further bytes; false if the input ends first or the count passes `most`.
bool read_count(const Byte*& from, const Byte* end, std::size_t most, std::size_t& count) {
    for (Byte more = 255; more == 255;) {
        if (from == end || count > most) return false;
        more = *from++;
        count += more;
    }
    return count <= most;
}

// Repeats the last `distance` bytes; may write up to 15 more than asked for.
void repeat_wide(Byte* to, std::size_t distance, std::size_t count) {
    if (distance >= kWide) return copy_wide(to, to - distance, count);
    const Byte* const end = to + count;
    if (kLittleEndian && distance < 8) {
        // Times 1 + 2^8d + 2^16d + ...: the d bytes again and again, as often as eight bytes hold them.
        static constexpr std::uint64_t kRepeat[8] = {0,
                                                     0x0101010101010101,
                                                     0x0001000100010001,
                                                     0x0001000001000001,
                                                     0x0000000100000001,
                                                     0x0000010000000001,
                                                     0x0001000000000001,
                                                     0x0100000000000001};
        const std::uint64_t mask = (std::uint64_t{1} << 8 * distance) - 1;
        const std::uint64_t pattern = (read<std::uint64_t>(to - distance) & mask) * kRepeat[distance];
        const std::size_t step = 8 / distance * distance;
        for (; to < end; to += step) std::memcpy(to, &pattern, 8);
        return;
    }
    for (; to < end; ++to) *to = *(to - distance);
}

}  // namespace

std::size_t compress(const char* source, std::size_t size, char* target, std::size_t room) {
    const auto* from = reinterpret_cast<const Byte*>(source);
    auto* to = reinterpret_cast<Byte*>(target);
    if (size > kLargest) return 0;
    if (size <= kFarthest + 1) return compress_with<Seen<std::uint16_t, 12>>(from, size, to, room);
    return compress_with<Seen<std::uint32_t, 12>>(from, size, to, room);
}

bool decompress(const char* source, std::size_t packed, char* target, std::size_t size) {
    const auto* from = reinterpret_cast<const Byte*>(source);
    const Byte* const from_end = from + packed;
    auto* const start = reinterpret_cast<Byte*>(target);
    Byte* to = start;
    Byte* const to_end = start + size;
    const auto left = [](const Byte* at, const Byte* end) { return static_cast<std::size_t>(end - at); };
    while (from < from_end) {
        const unsigned token = *from++;
        std::size_t literals = token >> 4;
        std::size_t match = token & 15;
        if (literals < 15 && left(from, from_end) >= kWide + 2 && left(to, to_end) >= kShortest) {
            // Most sequences are short, and far from both ends: copies of fixed size that write too much.
            std::memcpy(to, from, kWide);
            from += literals;
            to += literals;
            const std::size_t distance = read_distance(from);
            if (match < 15 && distance >= 8 && distance <= left(start, to)) {
                const Byte* const back = to - distance;
                std::memcpy(to, back, 8);
                std::memcpy(to + 8, back + 8, 8);
                std::memcpy(to + 16, back + 16, 2);
                from += 2;
                to += match + kLeastMatch;
                continue;
            }
        } else {
            if (literals == 15 && !read_count(from, from_end, left(to, to_end), literals)) return false;
            if (left(from, from_end) >= literals + kWide && left(to, to_end) >= literals + kWide) {
                copy_wide(to, from, literals);
            } else {
                if (literals > left(from, from_end) || literals > left(to, to_end)) return false;
                if (literals > 0) std::memcpy(to, from, literals);
            }
            from += literals;
            to += literals;
            if (from == from_end) return to == to_end;
            if (left(from, from_end) < 2) return false;
        }
        const std::size_t distance = read_distance(from);
        from += 2;
        if (distance == 0 || distance > left(start, to)) return false;
        if (match == 15 && !read_count(from, from_end, left(to, to_end), match)) return false;
        match += kLeastMatch;
        const std::size_t room = left(to, to_end);
        if (match > room) return false;
        if (distance == 1) {
            std::memset(to, to[-1], match);
        } else {  // at the very end byte by byte, so as not to write past it
            const std::size_t wide = std::min(match, room > kWide ? room - kWide : 0);
            if (wide > 0) repeat_wide(to, distance, wide);
            for (std::size_t i = wide; i < match; ++i) to[i] = *(to + i - distance);
        }
        to += match;
    }
    return false;  // a block ends with literals, if only with none of them
}

}  // namespace replaylab::lz4
