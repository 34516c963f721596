package zerobusfake

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// parseDecimal reads an exact decimal such as "-123.45", or "1E+3" as Python and Java write some, as a 128-bit number of d's scale. Digits
// behind the scale must be zeros.
func parseDecimal(s string, d deltalog.Decimal) (lo uint64, hi int64, ok bool) {
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		if s, ok = plainDecimal(s[:e], s[e+1:]); !ok {
			return 0, 0, false
		}
	}
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	var l, h uint64
	digits, significant, fraction := 0, 0, -1
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '.' && fraction < 0 {
			fraction = 0
			continue
		}
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		digits++
		if fraction >= 0 {
			if fraction == d.Scale {
				if c != '0' {
					return 0, 0, false
				}
				continue
			}
			fraction++
		}
		if l, h, significant, ok = shift10(l, h, significant, uint64(c-'0')); !ok {
			return 0, 0, false
		}
	}
	if digits == 0 {
		return 0, 0, false
	}
	for range d.Scale - max(fraction, 0) {
		if l, h, significant, ok = shift10(l, h, significant, 0); !ok {
			return 0, 0, false
		}
	}
	if significant > d.Precision {
		return 0, 0, false
	}
	if negative {
		var borrow uint64
		l, borrow = bits.Sub64(0, l, 0)
		h, _ = bits.Sub64(0, h, borrow)
	}
	return l, int64(h), true
}

// shift10 is (h:l)*10 + digit. At most 38 significant digits, which fit into 127 bits.
func shift10(l, h uint64, significant int, digit uint64) (uint64, uint64, int, bool) {
	if significant > 0 || digit > 0 {
		if significant++; significant > 38 {
			return 0, 0, 0, false
		}
	}
	over, low := bits.Mul64(l, 10)
	low, carry := bits.Add64(low, digit, 0)
	return low, h*10 + over + carry, significant, true
}

// maxExponent is beyond any that a decimal of 38 digits can have without trailing zeros.
const maxExponent = 100

// plainDecimal writes mantissa times ten to the exponent without an exponent, exactly.
func plainDecimal(mantissa, exponent string) (string, bool) {
	e, err := strconv.Atoi(exponent)
	if err != nil || e < -maxExponent || e > maxExponent {
		return "", false
	}
	sign := ""
	if mantissa != "" && (mantissa[0] == '-' || mantissa[0] == '+') {
		sign, mantissa = mantissa[:1], mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole+fraction == "" {
		return "", false
	}
	point := len(whole) + e
	digits := whole + fraction
	if point < 0 {
		digits, point = strings.Repeat("0", -point)+digits, 0
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	return sign + digits[:point] + "." + digits[point:], true
}
