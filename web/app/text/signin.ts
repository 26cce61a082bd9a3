/** Signing in, and the first administrator. */

export const signIn = {
  title: 'Sign in',
  name: 'Name',
  password: 'Password',
  show: 'Show',
  hide: 'Hide',
  showPassword: 'Show the password',
  submit: 'Sign in',
  with: (provider: string) => `Sign in with ${provider}`,
  withInTab: (provider: string) => `Sign in with ${provider} in a new tab`,
  noAdmin:
    'No administrator exists yet. Open the sign-in link that the server printed when it started; a restart prints a new one.',
  lostTitle: 'Sign in again',
  lost: 'Your session has ended. The page and everything typed stay as they are.',
  taken: (now: string, before: string) =>
    `${now} is signed in in this browser now. What is typed here is ${before}'s: sign in as ${before} to go on with it.`,
  tooMany: 'Too many tries.',
  wait: (seconds: number) => `Try again in ${seconds} s.`,
  other: 'Sign in as someone else',
  goOnAs: (name: string) => `Go on as ${name}`,
  doneTitle: 'Signed in',
  done: (name: string) =>
    `You are signed in as ${name}. Close this tab, and go on in the one that you came from.`,
  toDashboard: 'Open the dashboard here',
};

export const setup = {
  title: 'First administrator',
  intro: 'This name and password sign in from now on. The link works once.',
  name: 'Name',
  nameHelp: 'Small letters, digits and . _ -, beginning with a letter.',
  password: 'Password',
  passwordHelp: (least: number) => `At least ${least} characters; a few words make a good one.`,
  submit: 'Create and sign in',
  deadTitle: 'This link is used up',
  dead: 'The code is unknown, used or too old. For a new link: restart tidegate; it prints one while no administrator exists.',
  exists:
    'An administrator exists already, or the link is too old. For a new link: restart tidegate; it prints one while no administrator exists.',
  toSignIn: 'Go to sign-in',
};
