-- Charges words that nodes of Tidegate share; knows no algorithm. A value is HEAD|SECONDS|NANOSECONDS|VERSION (an instant)
-- or HEAD|COUNT|0|VERSION. Arguments: how many questions; of each how many charges, and of each charge sixteen: what (add,
-- instant, swap, look, clear), the place of its key, is it a shadow (1), the head (of a swap the value after it), the value before a
-- swap, from and until when it is right (microseconds), what is added and the most above the floor (seconds and nanoseconds,
-- or a count and 0), seconds to live, the version of the policy; the place of the key of those numbers that nodes have sent
-- (0: none), the node, the number of this charge: one that was made is not made again. A question is charged whole or not at
-- all. Answers the time in microseconds, and of each charge what became of it and the value then.
local place, time = 0, redis.call('TIME')
local now_s, now_n = tonumber(time[1]), tonumber(time[2]) * 1000
local now = now_s * 1000000 + tonumber(time[2])
local values, lives, told = {}, {}, { string.format('%.0f', now) }

local function text()
  place = place + 1
  return ARGV[place]
end

local function number()
  return tonumber(text())
end

local function charge()
  return {
    what = text(), key = number(), is_shadow = text() == '1', head = text(), before = text(), from = number(),
    till = number(), add_s = number(), add_n = number(), most_s = number(), most_n = number(), life = number(),
    version = number(), sent = number(), node = text(), number = text(),
  }
end

local function value(key)
  if not values[key] then values[key] = redis.call('GET', KEYS[key]) or '' end
  return values[key]
end

-- The value after a charge; nil: it does not fit, or this is not the value that it is for.
local function step(c, found)
  if c.what == 'look' then return 'looked', found end
  if c.what == 'clear' then return 'charged', '' end
  if c.sent > 0 and redis.call('HGET', KEYS[c.sent], c.node) == c.number then return 'known', found end
  if now < c.from or now >= c.till then return 'other' end
  if c.what == 'swap' then
    if found ~= c.before then return 'other' end
    return 'charged', c.head
  end
  local s, n, floor_s, floor_n, version = 0, 0, 0, 0, c.version
  if found ~= '' then
    local head, found_s, found_n, found_version = string.match(found, '^(.*)|(%d+)|(%d+)|(%d+)$')
    if head ~= c.head then return 'other' end
    s, n, version = tonumber(found_s), tonumber(found_n), math.max(version, tonumber(found_version))
  end
  if c.what == 'instant' then floor_s, floor_n = now_s, now_n end
  if s < floor_s or (s == floor_s and n < floor_n) then s, n = floor_s, floor_n end
  s, n = s + c.add_s, n + c.add_n
  if n >= 1000000000 then s, n = s + 1, n - 1000000000 end
  local over_s, over_n = s - floor_s, n - floor_n
  if over_n < 0 then over_s, over_n = over_s - 1, over_n + 1000000000 end
  if over_s > c.most_s or (over_s == c.most_s and over_n > c.most_n) then return 'refused' end
  return 'charged', string.format('%s|%.0f|%.0f|%.0f', c.head, s, n, version)
end

for _ = 1, number() do
  local charges, outcomes, after, is_charged = {}, {}, {}, true
  for i = 1, number() do
    charges[i] = charge()
    outcomes[i] = 'unasked'
    if is_charged then
      outcomes[i], after[i] = step(charges[i], value(charges[i].key))
      is_charged = outcomes[i] ~= 'other' and (outcomes[i] ~= 'refused' or charges[i].is_shadow)
    end
  end
  for i, c in ipairs(charges) do
    if outcomes[i] == 'charged' and is_charged then
      values[c.key] = after[i]
      lives[c.key] = c.life
      if c.sent > 0 then
        redis.call('HSET', KEYS[c.sent], c.node, c.number)
        redis.call('EXPIRE', KEYS[c.sent], math.max(c.life, 60))
      end
    elseif outcomes[i] == 'charged' then
      outcomes[i] = 'spared'
    end
    told[#told + 1] = outcomes[i]
    told[#told + 1] = outcomes[i] == 'unasked' and '' or value(c.key)
  end
end
for key, life in pairs(lives) do
  redis.call('SET', KEYS[key], values[key], 'EX', life)
end
return told
